"""Delivering inside a transaction that is never committed, now or as if time had passed.

    drain(conn, app)                                    what is due
    drain(conn, app, clock=clock, to_the_end=True)      everything, however long its back-off says to wait

The relay is the real one. It runs over the caller's connection, each of its verbs in a savepoint, one handler at
a time, and ends when it would have nothing to do. With a `ManualClock` every verb is told that it is later than it is,
by what the clock was advanced.
"""

import asyncio
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final, LiteralString, Self, cast
from uuid import uuid4

from redrive.app import App
from redrive.errors import UnsupportedConnection
from redrive.events import Events
from redrive.message import MessageId, WorkerId
from redrive.ports import RelayInfo, Store
from redrive.relay.loop import Relay
from redrive.settings import RelayLimits
from redrive.store.runtime.one_connection import StoreOnConnection, apsycopg_below, is_async, psycopg_below
from redrive.testing.clock import ManualClock
from redrive.testing.consuming import consume, on_connection
from redrive.testing.in_turn import in_turn, lent_to_threads
from redrive.testing.later import Later, LaterStore

DRAIN_SECONDS: Final = 30.0  # of real time, for what is due at one moment
ROUNDS_MAX: Final = 1000
EXPIRE_LIMIT: Final = 1000

# Whether a relay that handles these destinations would have something to do at a moment.
HAS_WORK: Final[LiteralString] = """
    SELECT EXISTS (SELECT 1 FROM redrive.lease)
        OR EXISTS (SELECT 1 FROM redrive.pending p
                    WHERE p.due_at <= %(now)s AND p.destination = ANY (%(destinations)s)
                      AND redrive.is_open(p.destination, %(now)s)
                      AND (p.lane IS NULL
                           OR EXISTS (SELECT 1 FROM redrive.lane_head(p.lane, %(now)s) h WHERE h.id = p.id)))
"""
# When it next would: what waits for a person, or behind one, does not count.
_NEXT_MOMENT: Final[LiteralString] = """
    SELECT min(greatest(p.due_at, d.paused_until, d.breaker_until))
      FROM redrive.pending p
      LEFT JOIN redrive.destination d ON d.name = p.destination
     WHERE p.destination = ANY (%(destinations)s)
       AND NOT (d.paused_at IS NOT NULL AND d.paused_until IS NULL)
       AND (p.lane IS NULL OR EXISTS (SELECT 1 FROM redrive.lane_head(p.lane, %(now)s) h WHERE h.id = p.id))
"""


@dataclass
class Drained:
    """What became of the messages that a drain has touched, by id, in order. A message may be retried several times.

    expired: how many were closed because their time had passed. processed, deferred, seen, reserved: what became of the
    events of each `ScriptedSource`, by their ids there; what was deferred is also a message.
    """

    delivered: list[MessageId] = field(default_factory=list)
    retried: list[MessageId] = field(default_factory=list)
    parked: list[MessageId] = field(default_factory=list)
    expired: int = 0
    processed: list[str] = field(default_factory=list)
    deferred: list[str] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    reserved: list[str] = field(default_factory=list)


def drain(conn: Any, app: App, *, clock: ManualClock | None = None, to_the_end: bool = False) -> Drained:
    """Consume what waits in each `ScriptedSource` of a consumer, then deliver all that is due, in the transaction that
    is open on `conn`, by the handlers of `app`.

    clock: it is as much later as the clock was advanced. to_the_end: the clock goes on from one due moment to the next,
    until nothing waits but for a person. Your handlers run for real.
    """
    drained = Drained()
    drain_into(drained, conn, app, clock, to_the_end=to_the_end)
    return drained


async def adrain(conn: Any, app: App, *, clock: ManualClock | None = None, to_the_end: bool = False) -> Drained:
    """`drain` for an asynchronous connection."""
    drained = Drained()
    await adrain_into(drained, conn, app, clock, to_the_end=to_the_end)
    return drained


def drain_into(
    drained: Drained, conn: Any, app: App, clock: ManualClock | None = None, *, to_the_end: bool = False
) -> None:
    """In a thread of its own: the caller may be inside an event loop."""
    if is_async(conn):
        raise UnsupportedConnection("This connection is asynchronous; await redrive.testing.adrain.")
    below = psycopg_below(conn)  # in this thread: to another one, `django.db.connection` is another connection
    with lent_to_threads(conn, app), ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: asyncio.run(adrain_into(drained, below, app, clock, to_the_end=to_the_end))).result()


async def adrain_into(
    drained: Drained, conn: Any, app: App, clock: ManualClock | None = None, *, to_the_end: bool = False
) -> None:
    clock = clock or ManualClock()
    moment = await _Moment.set_out(conn, app, clock)
    for _ in range(ROUNDS_MAX):
        await consume(drained, moment.conn, app)
        drained.expired += await moment.store.expire(limit=EXPIRE_LIMIT)
        await _deliver(moment, app, drained)
        next_moment = await moment.next() if to_the_end else None
        if next_moment is None:
            return
        clock.advance(max(next_moment - moment.later.now(), timedelta(0)))
    raise AssertionError(f"After {ROUNDS_MAX} moments at which something was due, something still waits.")


@dataclass
class _Moment:
    conn: Any
    connection: StoreOnConnection
    later: Later
    store: Store
    destinations: list[str]

    @classmethod
    async def set_out(cls, conn: Any, app: App, clock: ManualClock) -> Self:
        below = await apsycopg_below(conn)
        connection = StoreOnConnection(below)
        asked_at = time.monotonic()
        at: datetime = (await connection.rows("SELECT clock_timestamp()", []))[0][0]
        later = Later(clock, at, asked_at=asked_at)
        return cls(below, connection, later, cast("Store", LaterStore(connection, later)), list(app.destinations))

    async def has_work(self) -> bool:
        return bool(await self._ask(HAS_WORK))

    async def next(self) -> datetime | None:
        """None = not without a person."""
        at: datetime | None = await self._ask(_NEXT_MOMENT)
        return at

    async def _ask(self, query: LiteralString) -> Any:
        values = {"destinations": self.destinations, "now": self.later.now()}
        return (await self.connection.rows(query, values))[0][0]


async def _deliver(moment: _Moment, app: App, drained: Drained) -> None:
    """By a relay that lives for so long."""
    if not await moment.has_work():
        return
    events, idle = Events(), asyncio.Event()
    events.subscribe(lambda *_: idle.set(), "relay.idle")
    _note(events, drained)
    relay = Relay(
        moment.store,
        in_turn(on_connection(app.destinations, moment.conn, app), moment.connection.turn),
        info=_info(app),
        limits=RelayLimits(poll_seconds=0.05),
        clock=moment.later,
        random=Random(),
        events=events,
    )
    running = asyncio.create_task(relay.run())
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            while not running.done() and await moment.has_work():
                idle.clear()
                waiting = asyncio.create_task(idle.wait())
                await asyncio.wait([waiting, running], timeout=0.05, return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
    finally:
        relay.stop()
        await running


def _note(events: Events, drained: Drained) -> None:
    def note(name: str, values: Mapping[str, Any]) -> None:
        getattr(drained, name.removeprefix("message.")).append(values["id"])

    events.subscribe(note, "message.delivered", "message.retried", "message.parked")


def _info(app: App) -> RelayInfo:
    return RelayInfo(
        worker=WorkerId(uuid4()), name="test", host="", pid=0, version="", destinations=list(app.destinations)
    )
