"""A rail in this process, for tests that kill nobody: the simulator's own code behind a real socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp.test_utils import TestServer

from redrive.systems.payments import Rail
from redrive.systems.payments.rail.ledger import Effect, read_effects
from redrive.systems.payments.rail.script import Profile, Script
from redrive.systems.payments.rail.server import Rail as Simulator
from redrive.systems.payments.rail.server import RailSettings
from redrive.transports.http import Egress

LOOPBACK = Egress(allow=["127.0.0.0/8"], schemes=frozenset({"http"}))


class Running:
    """url: of the rail. ledger: its file, the judge."""

    def __init__(self, url: str, ledger: Path) -> None:
        self.url = url
        self.ledger = ledger

    @property
    def effects(self) -> Sequence[Effect]:
        return list(read_effects(self.ledger))

    def rail(self, **values: Any) -> Rail:
        """As a destination of the engine, with nothing to wait for."""
        return Rail(**{"rail_type": "sepa", "url": self.url, "egress": LOOPBACK, "has_statement": True, **values})


@asynccontextmanager
async def running(
    ledger: Path, *, profile: Profile = Profile.TOKEN_AND_LOOKUP, **script: Any
) -> AsyncIterator[Running]:
    simulator = Simulator(RailSettings(ledger=ledger, profile=profile, script=Script(**script)))
    async with TestServer(simulator.app()) as server:
        yield Running(str(server.make_url("")).rstrip("/"), ledger)


def order(token: str = "t-1", **other: Any) -> dict[str, Any]:
    """A right one, but for what is given."""
    return {
        "token": token,
        "instruction_id": f"pay-{token}",
        "participant_id": "acme",
        "sequence_id": 1,
        "rail_type": "sepa",
        "amount": "12.34",
        "currency": "EUR",
        "destination": {"iban": "DE75512108001245126199"},
        **other,
    }


async def post(url: str, body: Mapping[str, Any]) -> tuple[int, Any, Mapping[str, str]]:
    """Status, body and headers; aiohttp's error where the connection was dropped."""
    async with aiohttp.ClientSession() as session:
        headers = {"Idempotency-Key": f'"{body.get("token")}"'}
        async with session.post(f"{url}/payments", json=body, headers=headers) as reply:
            text = await reply.read()
            return reply.status, _json(text), reply.headers


async def get(url: str) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session, session.get(url) as reply:
        return reply.status, _json(await reply.read())


def _json(text: bytes) -> Any:
    import json

    try:
        return json.loads(text)
    except ValueError:
        return text
