"""A relay inside the test, on a real database: what it does is waited for by its events, never by the clock.

`relaying` runs the loop alone (no duties, no suspects); `processing` runs all that `redrive relay` runs. Both stop
gracefully at the end of the block and fail the test when the relay died before.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final
from uuid import UUID

from redrive.app import App
from redrive.events import Events
from redrive.message import MessageId, WorkerId
from redrive.ports import RelayInfo, Store
from redrive.relay.build import SystemClock, declared
from redrive.relay.clock_watch import ClockWatch
from redrive.relay.context import new_worker
from redrive.relay.loop import Relay
from redrive.relay.process import RelayProcess, run_relay
from redrive.settings import RelayLimits
from redrive.store.runtime import listen_connection
from redrive.store.runtime.postgres import PostgresStore

SECONDS_MAX: Final = 20.0
QUICK: Final[Mapping[str, Any]] = {
    "lease_seconds": 10.0,
    "heartbeat_seconds": 0.1,
    "poll_seconds": 0.05,
    "stop_seconds": 5.0,
    "reap_every_seconds": 0.1,
}


class Seen:
    """Every event of a relay, and waiting for one."""

    def __init__(self) -> None:
        self.all: list[tuple[str, Mapping[str, Any]]] = []
        self.events = Events()
        self.events.subscribe(self._note)
        self._news = asyncio.Event()

    def _note(self, name: str, values: Mapping[str, Any]) -> None:
        self.all.append((name, values))
        self._news.set()

    def of(self, name: str, **wanted: Any) -> list[Mapping[str, Any]]:
        """The values of all events of that name which have these."""
        return [v for n, v in self.all if n == name and all(v.get(key) == value for key, value in wanted.items())]

    async def until(self, name: str, *, count: int = 1, **wanted: Any) -> None:
        await self.that(lambda: len(self.of(name, **wanted)) >= count, what=f"{count} × {name} {wanted}")

    async def next(self, name: str, *, count: int = 1, **wanted: Any) -> None:
        """That many more than there are now."""
        await self.until(name, count=len(self.of(name, **wanted)) + count, **wanted)

    async def that(self, condition: Callable[[], bool], *, what: str) -> None:
        """Looked at after every event; something that happens without one is found within 20 ms."""
        deadline = asyncio.get_running_loop().time() + SECONDS_MAX
        while not condition():
            assert asyncio.get_running_loop().time() < deadline, (
                f"waited {SECONDS_MAX} s for {what}, in vain; last: {self.all[-15:]}"
            )
            self._news.clear()
            try:
                async with asyncio.timeout(0.02):
                    await self._news.wait()
            except TimeoutError:
                pass


class Running:
    """One relay of a test."""

    def __init__(
        self,
        store: Store,
        app: App,
        seen: Seen,
        *,
        suspects_only: bool = False,
        has_children: bool = False,
        listen_dsn: str | None = None,
        watches_clock: bool = False,
        **limits: Any,
    ) -> None:
        self.seen = seen
        self.worker: WorkerId = new_worker(Random())
        self.limits = RelayLimits(**{**QUICK, **limits})
        self.relay = Relay(
            store,
            app.destinations,
            info=_info(self.worker, app, suspects_only=suspects_only),
            limits=self.limits,
            clock=SystemClock(),
            random=Random(),
            events=seen.events,
            open_listen_connection=partial(listen_connection.opened, listen_dsn, self.worker) if listen_dsn else None,
            has_children=has_children,
            clock_watch=self._watch(store) if watches_clock else None,
        )
        self.task = asyncio.create_task(self.relay.run())

    def _watch(self, store: Store) -> ClockWatch:
        return ClockWatch(
            store,
            self.worker,
            elapsed=SystemClock.elapsed,
            confirm_seconds=0.9 * self.limits.heartbeat_seconds,
            events=self.seen.events,
        )

    async def stop(self) -> None:
        """Gracefully; whatever the relay died of is raised here."""
        self.relay.stop()
        await self.ended()

    async def ended(self) -> None:
        done, _ = await asyncio.wait([self.task], timeout=SECONDS_MAX)
        assert done, "the relay did not end"
        self.task.result()


def _info(worker: WorkerId, app: App, *, suspects_only: bool) -> RelayInfo:
    return RelayInfo(
        worker=worker,
        name="test",
        host="here",
        pid=1,
        version="0",
        **declared(app.destinations),
        suspects_only=suspects_only,
    )


@asynccontextmanager
async def relaying(store: Store, app: App, *, seen: Seen | None = None, **options: Any) -> AsyncIterator[Running]:
    """options: of `Running`, and of `RelayLimits`."""
    running = Running(store, app, seen or Seen(), **options)
    try:
        yield running
    finally:
        await running.stop()


@asynccontextmanager
async def processing(
    dsn: str, app: App, *, seen: Seen | None = None, state_directory: Path | None = None, **limits: Any
) -> AsyncIterator[Seen]:
    """Loop, duties and suspects, as one process runs them."""
    seen = seen or Seen()
    process = RelayProcess(
        app=app,
        dsn=dsn,
        limits=RelayLimits(**{**QUICK, **limits}),
        name="test",
        state_directory=state_directory,
    )
    task = asyncio.create_task(run_relay(process, events=seen.events, signals=False))
    try:
        yield seen
    finally:
        if not task.done():
            task.cancel()
        done, _ = await asyncio.wait([task], timeout=SECONDS_MAX)
        assert done, "the relay did not end"
        task.result()


class Gate:
    """A handler's door: counts who is inside, and lets them out when told to."""

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0
        self.entered: list[UUID] = []
        self._open = asyncio.Event()

    async def __call__(self, id: UUID) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.entered.append(id)
        try:
            await self._open.wait()
        finally:
            self.inside -= 1

    def open(self) -> None:
        self._open.set()


async def enqueue(
    store: PostgresStore, count: int = 1, *, destination: str = "shop", level: int = 1, body: bytes = b"{}"
) -> list[MessageId]:
    """That many messages, due at once."""
    rows = await store.rows(
        "SELECT (redrive.enqueue_1(%s, %s, p_level => %s::smallint)).id FROM generate_series(1, %s)",
        [destination, body, level, count],
    )
    return [MessageId(row[0]) for row in rows]


async def states(store: PostgresStore) -> dict[str, int]:
    """How many messages are pending, leased, parked·<reason>, or closed, in one snapshot."""
    rows = await store.rows(
        "SELECT state, count(*) FROM ("
        "SELECT coalesce((SELECT 'parked·' || k.reason FROM redrive.parked k WHERE k.id = m.id),"
        " redrive.state_of(m.id)) AS state FROM redrive.message m) s GROUP BY state",
        [],
    )
    return {str(state): int(count) for state, count in rows}


async def history(store: PostgresStore, id: MessageId) -> list[tuple[str, str | None, str | None]]:
    """Verb, settlement and code of each archive row."""
    return [(entry.verb, entry.settlement, entry.code) for entry in await store.history(id)]


def settled(seen: Seen) -> int:
    """Messages that ended one way or another."""
    names = ("message.delivered", "message.parked", "message.retried", "message.closed", "message.advanced")
    return sum(len(seen.of(name)) for name in names)


def names(ids: Sequence[MessageId]) -> set[str]:
    return {str(id) for id in ids}
