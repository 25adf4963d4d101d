"""A relay on a database whose clock is set while it runs: nothing is sent on it before the jump is recorded (G-33)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final

import pytest

from redrive.app import App
from redrive.events import Events
from redrive.message import Attempt
from redrive.ports import Place, RelayInfo
from redrive.relay.clock_watch import ClockWatch
from redrive.relay.context import new_worker
from redrive.relay.loop import Relay
from redrive.settings import RelayLimits
from redrive.store.runtime.postgres import PostgresStore
from redrive.testing import ManualClock
from tests.model_store.model import ModelStore
from tests.model_store.tables import START
from tests.relay.harness import enqueue, history, relaying

pytestmark = pytest.mark.req("G-33")

HOUR: Final = 3600.0
VERBS: Final = (
    *("claim", "low_water", "claim_suspect", "settle", "hand_back", "renew", "reap", "observe_clock", "clock_jumped"),
    *("redate", "register", "heartbeat", "pause", "resume", "begin_duty", "end_duty", "announce_idle"),
)


class SetClock(PostgresStore):
    """A database whose clock says `offset_seconds` more than the machine's: the owner may say what time it is."""

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn, connections=8)
        self.offset_seconds = 0.0
        for verb in VERBS:
            setattr(self, verb, self._dated(getattr(self, verb)))

    def _dated(self, verb: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def called(*arguments: Any, **options: Any) -> Any:
            now = datetime.now(UTC) + timedelta(seconds=self.offset_seconds)
            return await verb(*arguments, **{"now": now, **options})

        return called


@pytest.mark.parametrize("offset", [-3 * HOUR, 3 * HOUR])
async def test_what_waited_when_the_clock_was_set_is_sent_within_a_poll(database: str, app: App, offset: float) -> None:
    sent: list[Attempt] = []

    @app.destination("shop")
    async def handle(attempt: Attempt) -> None:
        sent.append(attempt)

    async with SetClock(database) as store:
        async with relaying(store, app, watches_clock=True) as relay:
            await relay.seen.until("heartbeat.stop", count=2)
            await store.pause("shop", actor="test", reason="test")
            ids = await enqueue(store, 5)
            store.offset_seconds = offset
            await relay.seen.until("relay.clock_jumped")
            await store.resume("shop", actor="test", reason="test")
            await relay.seen.until("message.delivered", count=5)
            assert [round(told["offset_seconds"]) for told in relay.seen.of("relay.clock_jumped")] == [offset]
        assert sorted(attempt.id for attempt in sent) == sorted(ids)
        assert await store.rows("SELECT count(*) FROM redrive.clock_jump", []) == [(1,)]


async def test_what_is_claimed_on_a_clock_that_jumped_is_handed_back_unsent(database: str, app: App) -> None:
    @app.destination("shop")
    async def handle(_: Attempt) -> None: ...

    async with SetClock(database) as store:
        async with relaying(store, app, watches_clock=True, heartbeat_seconds=9.0, lease_seconds=30.0) as relay:
            await relay.seen.until("claim.stop")
            store.offset_seconds = 3 * HOUR
            (id,) = await enqueue(store)
            await relay.seen.until("message.delivered")
            assert len(relay.seen.of("relay.clock_jumped")) == 1
        assert [verb for verb, *_ in await history(store, id)] == ["hand_back", "settle"]


async def test_marks_of_the_clock_as_it_was_are_forgotten(app: App) -> None:
    @app.destination("shop")
    async def handle(_: Attempt) -> None: ...

    store, events, worker = ModelStore(), Events(), new_worker(Random(1))
    watch = ClockWatch(store, worker, elapsed=lambda: 0.0, confirm_seconds=1, events=events)
    relay = Relay(
        store,
        app.destinations,
        info=RelayInfo(worker=worker, name="r", host="h", pid=1, version="0", destinations=["shop"]),
        limits=RelayLimits(),
        clock=ManualClock(),
        random=Random(1),
        events=events,
        clock_watch=watch,
    )
    relay._low_water.marks[Place("shop", 1)] = START
    await watch.look()
    assert relay._low_water.marks
    store.time -= timedelta(hours=3)
    await watch.look()
    assert not relay._low_water.marks
