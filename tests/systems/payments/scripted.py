"""A rail that answers what a test wrote down, and a ledger of what it did; and a relay that runs to the end against it.

The relay works inside one transaction that is never committed, with time that jumps from one due moment to the next.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import psycopg
from aiohttp import web

import redrive
from redrive.systems import payments
from redrive.systems.payments import Rail
from redrive.testing import ManualClock, adrain
from tests.transports.servers import HERE, Destination, hang_up, never, serving

Conn = psycopg.AsyncConnection[Any]
STATUS = {
    "ACCEPTED": 201,
    "DUPLICATE": 200,
    "IN_PROGRESS": 409,
    "INSUFFICIENT_FUNDS": 402,
    "ACCOUNT_CLOSED": 422,
    "THROTTLED": 429,
    "UNAVAILABLE": 503,
    "INTERNAL": 500,
}


@dataclass
class ScriptedRail:
    """script: what each POST gets, the last for ever: a code; `lost`, done and not answered; `dropped`, neither;
    `never`, done and no end. lookups: what each GET gets, as the ledger says once they are used up.
    """

    script: list[str] = field(default_factory=lambda: ["ACCEPTED"])
    lookups: list[str] = field(default_factory=list)
    remembers: bool = True
    ledger: list[dict[str, Any]] = field(default_factory=list)
    server: Destination = field(init=False)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        return await (self._pay(request) if request.method == "POST" else self._look_up(request))

    async def _pay(self, request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        known = next((one for one in self.ledger if one["token"] == asked["token"]), None)
        if self.remembers and known is not None:
            return _said("DUPLICATE", known["reference"])
        if step in ("ACCEPTED", "lost", "never"):
            self.ledger.append({**asked, "reference": f"ref-{len(self.ledger) + 1}"})
        if step in ("lost", "dropped"):
            return await hang_up(request)
        return await never(request) if step == "never" else _said(step, f"ref-{len(self.ledger)}")

    async def _look_up(self, request: web.Request) -> web.StreamResponse:
        token = request.path.rpartition("/")[2]
        step = self.lookups.pop(0) if self.lookups else None
        if step is not None:
            return _said(step, None)
        known = next((one for one in self.ledger if one["token"] == token), None)
        if known is None:
            return web.json_response({"code": "NOT_FOUND"}, status=404)
        return web.json_response({**known, "code": "ACCEPTED"})

    @property
    def sent(self) -> list[dict[str, Any]]:
        """The bodies of the POSTs, in order."""
        return [json.loads(one.body) for one in self.server.asked if one.method == "POST"]

    @property
    def methods(self) -> list[str]:
        return [one.method for one in self.server.asked]


def _said(code: str, reference: str | None) -> web.Response:
    return web.json_response({"code": code, "reference": reference, "message": "as scripted"}, status=STATUS[code])


@dataclass
class Desk:
    """A transaction with a rail: payments go in, and are made until nothing moves any more."""

    conn: Conn
    rail: ScriptedRail
    declared: Rail
    clock: ManualClock = field(default_factory=ManualClock)

    async def submit(self, *wanted: payments.Instruction) -> list[UUID]:
        return [(await payments.asubmit(self.conn, one)).outbox_id for one in wanted]

    async def run(self) -> None:
        """To the end: until nothing waits but for a person."""
        app = redrive.App()
        app.include(payments.with_rails([self.declared]))
        try:
            await adrain(self.conn, app, clock=self.clock, to_the_end=True)
        finally:
            for destination in app.destinations.values():
                await destination.transport.aclose()  # type: ignore[attr-defined]

    async def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        cursor = await self.conn.execute(query.encode(), values)
        return list(await cursor.fetchall())

    async def states(self, ids: list[UUID]) -> list[str]:
        """Where each is: how it was closed, or for what it is parked."""
        query = "SELECT coalesce((SELECT reason FROM redrive.parked WHERE id = %s), redrive.state_of(%s))"
        return [(await self.rows(query, one, one))[0][0] for one in ids]


@asynccontextmanager
async def desk(dsn: str, rail: ScriptedRail | None = None, **options: Any) -> AsyncIterator[Desk]:
    """On a rail with token and lookup, unless the options say otherwise."""
    rail = rail or ScriptedRail()
    async with serving(rail.answer) as rail.server:
        offered = {"token_ttl_seconds": 86_400.0, "can_look_up": True, "breaker": None, **options}
        offered.setdefault("lookups_are_immediate", "lookup_after_seconds" not in offered)
        declared = Rail(rail_type="sepa", url=rail.server.url, egress=HERE, **offered)
        async with await psycopg.AsyncConnection.connect(dsn) as conn:
            yield Desk(conn, rail, declared)
            await conn.rollback()
