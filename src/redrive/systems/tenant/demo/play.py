"""Runs the demo: subscribers in a process of their own, a relay here, and the story told while it happens."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg.rows import dict_row
from rich.console import Console
from rich.text import Text

from redrive.kit.cli import output
from redrive.kit.database import open_database
from redrive.kit.demo import Demo, StoryRelay, exit_code, relay_beside, simulated, what_next, with_database
from redrive.kit.proof import journal
from redrive.systems.tenant import reads
from redrive.systems.tenant.demo import app as demo_app
from redrive.systems.tenant.demo import story
from redrive.systems.tenant.demo.story import TENANTS, Order
from redrive.systems.tenant.health import judge
from redrive.systems.tenant.names import LOGGER
from redrive.systems.tenant.writer import Added, OutboxWriter

SUBSCRIBERS: Final = "redrive.systems.tenant.demo.subscribers"
LEDGER: Final = "subscribers.ledger"
COMMANDS: Final = (
    ("tenant", "metrics"),
    ("tenant", "health"),
    ("tenant", "list", "--status", "failed"),
    ("console",),
)
LOOK_SECONDS: Final = 0.2
SCENE_SECONDS_MAX: Final = 120.0
WRITER: Final = OutboxWriter(event_types=story.TYPES)
_TABLE: Final = """
CREATE SCHEMA IF NOT EXISTS redrive_tenant_demo;
CREATE TABLE IF NOT EXISTS redrive_tenant_demo.orders (
    run integer NOT NULL, tenant text NOT NULL, name text NOT NULL, total numeric NOT NULL, PRIMARY KEY (tenant, name)
);
"""
_RUN: Final = "SELECT coalesce(max(run), 0) + 1 FROM redrive_tenant_demo.orders"
_ORDER: Final = "INSERT INTO redrive_tenant_demo.orders VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING"
_EVENT: Final = """
SELECT state, retry_count, error FROM redrive_tenant.outbox_messages WHERE tenant_id = %s AND idempotency_key = %s
"""


class Interrupted(Exception):
    """Ctrl-C before the end of the story."""


def run(demo: Demo, console: Console) -> int:
    """Exit code: 0, or 1 where the story ended otherwise than it must."""
    return with_database(demo, console, lambda dsn: _with_database(demo, dsn, console))


def _with_database(demo: Demo, dsn: str, console: Console) -> int:
    (demo.home / "redrive.toml").write_text(f"dsn = {json.dumps(dsn)}\n", encoding="utf-8")
    with simulated(SUBSCRIBERS, {"ledger": str(demo.home / LEDGER)}) as url:
        os.environ[demo_app.VARIABLE] = url
        return asyncio.run(_play(demo, Told(dsn, url, _next_run(dsn), console)))


async def _play(demo: Demo, told: Told) -> int:
    logging.getLogger(LOGGER).addHandler(logging.NullHandler())  # its lines would stand between those of the story
    wrong: list[str] = []
    async with relay_beside(
        told.console, demo_app.made(), spec=demo_app.SPEC, dsn=told.dsn, name="tenant demo", poll_seconds=1
    ) as relay:
        with suppress(Interrupted):
            await told.tell(relay)
            wrong = violations(told, demo.home / LEDGER)
            what_next(demo.home, told.console, "To look at it, in another terminal:", *COMMANDS)
            await relay.go_on(demo)
    return exit_code(demo, told.console, wrong)


@dataclass
class Told:
    """The story, scene by scene. run: which time it is played."""

    dsn: str
    url: str
    run: int
    console: Console
    relay: StoryRelay | None = None

    async def tell(self, relay: StoryRelay) -> None:
        self.relay = relay
        for scene in (self._added, self._added_again, self._rolled_back, self._down, self._recovered, self._gone):
            await scene()
        await self._numbers("In the end")

    async def _added(self) -> None:
        self._say(story.BAKERY, "an order and its event are committed in one transaction")
        self._add(story.BREAD)
        await self._until(story.BREAD)

    async def _added_again(self) -> None:
        self._say(story.BAKERY, "the request comes again, as from a browser that did not get the answer")
        added = self._add(story.BREAD)
        self._say(story.BAKERY, f"absorbed: key {added.key} is known, its event is {added.state}; nothing is written")

    async def _rolled_back(self) -> None:
        self._add(story.ROLLED_BACK, commits=False)
        self._say(story.BAKERY, "another order is rolled back, and its event with it")
        await self._numbers("So far")

    async def _down(self) -> None:
        await self._answers(story.GARAGE, story.DOWN)
        self._say(story.GARAGE, "its subscriber goes down; three orders are placed all the same")
        for order in story.TYRES:
            self._add(order)
        await self._until_failed(story.TYRES)
        self._say(story.BAKERY, "does not wait for its neighbour:")
        self._add(story.ROLLS)
        await self._until(story.ROLLS)
        await self._numbers("While it is down")

    async def _recovered(self) -> None:
        await self._answers(story.GARAGE, story.UP)
        self._say(story.GARAGE, "its subscriber is back")
        for order in story.TYRES:
            await self._until(order)

    async def _gone(self) -> None:
        await self._answers(story.CINEMA, story.GONE)
        self._say(story.CINEMA, "its subscriber is gone for good (410): trying again would not help")
        self._add(story.TICKETS)
        await self._until(story.TICKETS)

    # what the scenes do

    def _add(self, order: Order, *, commits: bool = True) -> Added:
        with psycopg.connect(self.dsn) as conn:
            conn.execute(_ORDER, [self.run, order.tenant, order.entity(self.run), order.total])
            added = WRITER.add(conn, order.tenant, order.event(self.run))
            if not commits:
                conn.rollback()
        return added

    async def _answers(self, tenant: str, status: int) -> None:
        def put() -> None:
            body = json.dumps({"status": status}).encode()
            request = urllib.request.Request(f"{self.url}/{tenant}", data=body, method="PUT")  # noqa: S310 - our own
            with urllib.request.urlopen(request):  # noqa: S310
                pass

        await asyncio.to_thread(put)

    async def _until(self, order: Order) -> None:
        stands = await self._wait(order, lambda stands: stands["state"] == order.ends)
        state = Text(f"{order.entity(self.run):<12}{order.total:>8}  ")
        state.append(stands["state"], style=output.STATE_STYLES.get(stands["state"], ""))
        tries = f" after {stands['retry_count']} failures" if stands["retry_count"] else ""
        state.append(f": {stands['error']}" if stands["error"] else tries)
        self._say(order.tenant, state)

    async def _until_failed(self, orders: Sequence[Order]) -> None:
        for order in orders:
            stands = await self._wait(order, lambda stands: stands["retry_count"] > 0)
            self._say(
                order.tenant,
                f"{order.entity(self.run):<12}{order.total:>8}  failed, and is tried again: {stands['error']}",
            )

    async def _wait(self, order: Order, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """How the event stands once it is so, or when the scene's time is over."""
        deadline = asyncio.get_running_loop().time() + SCENE_SECONDS_MAX
        while True:
            stands = await asyncio.to_thread(self.stands, order)
            if is_so(stands) or asyncio.get_running_loop().time() > deadline:
                return stands
            assert self.relay is not None
            await self.relay.pause(LOOK_SECONDS)
            if self.relay.ended.is_set():
                raise Interrupted

    def stands(self, order: Order) -> dict[str, Any]:
        key = story.TYPES.key(order.tenant, story.EVENT_TYPE, {"entity": order.entity(self.run), "version": 1})
        with psycopg.connect(self.dsn, row_factory=dict_row) as conn:
            found = conn.execute(_EVENT, [order.tenant, key]).fetchone()
        return found or {"state": "not there", "retry_count": 0, "error": None}

    async def _numbers(self, when: str) -> None:
        async with open_database(self.dsn) as store:
            options = await reads.published_options(store)
            numbers = await reads.numbers(store, tenant=None, options=options)
        health = judge(numbers, options)
        self.console.print(
            f"{when}: backlog {numbers.backlog_size}, failed {numbers.failed_pending}, dead letters"
            f" {numbers.dead_letters}, processed {numbers.processed}, failure ratio {numbers.failure_ratio:.0%};"
            f" {': '.join([health.verdict, *filter(None, ['; '.join(health.reasons)])])}",
            style="bold",
            soft_wrap=True,
        )

    def _say(self, tenant: str, what: str | Text) -> None:
        line = Text(f"{TENANTS[tenant]:<18}")
        line.append(what)
        self.console.print(line, soft_wrap=True)


def violations(told: Told, ledger: Path) -> list[str]:
    """Where the story ended otherwise than it must."""
    taken = [(line["tenant"], line["order"]) for line in journal.read(ledger)]
    found = []
    for order in (*story.ADDED, story.ROLLED_BACK):
        ends = order.ends if order is not story.ROLLED_BACK else "not there"
        state, name = told.stands(order)["state"], order.entity(told.run)
        if state != ends:
            found.append(f"{name} is {state}; it should be {ends}.")
        times, wanted = taken.count((order.tenant, name)), int(ends == "delivered")
        if times != wanted:
            found.append(f"The subscriber of {order.tenant} took {name} {times} times; it should be {wanted}.")
    return found


def _next_run(dsn: str) -> int:
    with psycopg.connect(dsn) as conn:
        conn.execute(_TABLE)
        row = conn.execute(_RUN).fetchone()
    assert row is not None
    return int(row[0])
