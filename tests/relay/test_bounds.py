"""What one relay takes on: so much at a time and no more, and no destination at another's expense (G-09)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pytest

from redrive.app import App
from redrive.message import Attempt, WorkerId
from redrive.ports import Claimed, ClaimRequest
from redrive.store.runtime.postgres import PostgresStore
from tests.relay.harness import SECONDS_MAX, Gate, enqueue, relaying, settled, states

pytestmark = pytest.mark.req("G-09")


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_a_destination_has_as_many_sends_at_a_time_as_it_says(
    store: PostgresStore, app: App, concurrency: int
) -> None:
    gate = Gate()

    @app.destination("shop", concurrency=concurrency)
    async def handle(attempt: Attempt) -> None:
        await gate(attempt.id)

    await enqueue(store, 12)
    async with relaying(store, app) as relay:
        await relay.seen.that(lambda: gate.inside == concurrency, what="all slots in use")
        await relay.seen.next("heartbeat.stop", count=2)
        assert gate.most == concurrency
        gate.open()
        await relay.seen.until("message.delivered", count=12)
    assert gate.most == concurrency
    assert len(set(gate.entered)) == len(gate.entered) == 12


async def test_threads_are_bounded_like_everything_else(store: PostgresStore, app: App) -> None:
    inside: list[int] = []
    most: list[int] = []
    lock = threading.Lock()
    go_on = threading.Event()

    @app.destination("shop", concurrency=3)
    def handle(attempt: Attempt) -> None:
        with lock:
            inside.append(1)
            most.append(len(inside))
        go_on.wait(SECONDS_MAX)
        with lock:
            inside.pop()

    await enqueue(store, 10)
    async with relaying(store, app) as relay:
        await relay.seen.that(lambda: len(inside) == 3, what="three threads")
        go_on.set()
        await relay.seen.until("message.delivered", count=10)
    assert max(most) == 3


async def test_a_process_has_as_many_sends_at_a_time_as_it_says_over_all_destinations(
    store: PostgresStore, app: App
) -> None:
    gate = Gate()
    for number in range(4):

        @app.destination(f"d{number}", concurrency=5)
        async def handle(attempt: Attempt) -> None:
            await gate(attempt.id)

        await enqueue(store, 8, destination=f"d{number}")
    async with relaying(store, app, concurrency=7) as relay:
        await relay.seen.that(lambda: gate.inside == 7, what="all slots of the process in use")
        await relay.seen.next("heartbeat.stop", count=2)
        assert gate.most == 7
        gate.open()
        await relay.seen.until("message.delivered", count=32)
    assert gate.most == 7


async def test_a_destination_with_endless_work_leaves_slots_to_the_others(store: PostgresStore, app: App) -> None:
    """All slots of the process are taken by one that never runs out of work; the other gets its share all the same."""
    finished: list[str] = []

    async def work(attempt: Attempt) -> None:
        await asyncio.sleep(0.01)
        finished.append(attempt.destination)

    app.destination("busy", concurrency=4)(work)
    app.destination("rare", concurrency=4)(work)
    await enqueue(store, 400, destination="busy")
    async with relaying(store, app, concurrency=4) as relay:
        await relay.seen.that(lambda: len(finished) > 20, what="busy to be at work")
        await enqueue(store, 4, destination="rare")
        await relay.seen.that(lambda: finished.count("rare") == 4, what="rare to be worked off")
        assert finished.count("busy") < 400


async def test_one_hanging_destination_among_twenty_holds_up_nobody(store: PostgresStore, app: App) -> None:
    hanging = Gate()

    @app.destination("d0", concurrency=10)
    async def hang(attempt: Attempt) -> None:
        await hanging(attempt.id)

    for number in range(1, 20):

        @app.destination(f"d{number}", concurrency=10)
        async def handle(attempt: Attempt) -> None: ...

    await enqueue(store, 30, destination="d0")
    async with relaying(store, app) as relay:
        await relay.seen.that(lambda: hanging.inside == 10, what="the hanging one to hang")
        for number in range(1, 20):
            await enqueue(store, 20, destination=f"d{number}")
        await relay.seen.until("message.delivered", count=19 * 20)
        assert hanging.most == 10
        hanging.open()
        await relay.seen.until("message.delivered", count=19 * 20 + 30)


class Counting(PostgresStore):
    """Counts verbs, and how many messages are leased after each claim."""

    def __init__(self, dsn: str, **options: Any) -> None:
        super().__init__(dsn, **options)
        self.calls: list[str] = []
        self.asked: list[Sequence[ClaimRequest]] = []
        self.leased_most = 0

    async def rows(self, query: Any, values: Any) -> list[Any]:
        self.calls.append(str(query).split("redrive.")[1].split("(")[0])
        return await super().rows(query, values)

    async def claim(
        self,
        worker: WorkerId,
        claim_requests: Sequence[ClaimRequest],
        *,
        lease_seconds: float,
        now: datetime | None = None,
    ) -> Claimed:
        self.asked.append(claim_requests)
        claimed = await super().claim(worker, claim_requests, lease_seconds=lease_seconds, now=now)
        ((leased,),) = await super().rows("SELECT count(*) FROM redrive.lease -- redrive.(", [])
        self.leased_most = max(self.leased_most, int(leased))
        return claimed


async def test_draining_a_thousand_messages_takes_few_statements(database: str, app: App) -> None:
    @app.destination("shop")
    async def handle(attempt: Attempt) -> None: ...

    async with Counting(database, connections=6) as store:
        await enqueue(store, 1000)
        store.calls.clear()
        async with relaying(store, app, heartbeat_seconds=5.0, lease_seconds=15.0) as relay:
            await relay.seen.until("message.delivered", count=1000)
            spent = {verb: store.calls.count(verb) for verb in set(store.calls) if verb}
    assert spent.pop("claim_1") <= 30
    assert spent.pop("settle_delivered_1") <= 60
    assert spent.pop("low_water_1") <= 30  # once a second, and more often while its way is long
    spent.pop("check_claims_1", None)  # at most eight a second, on a machine that is too slow to begin what it claimed
    assert spent == {"register_1": 1}


@pytest.mark.parametrize("claim_max", [1, 2, 7])
async def test_no_more_is_in_hand_than_allowed(database: str, app: App, claim_max: int) -> None:
    """All levels are full, and the handlers are so slow that every settled message is a fresh claim."""
    gate = Gate()

    @app.destination("shop", concurrency=20)
    async def handle(attempt: Attempt) -> None:
        await gate(attempt.id)

    async with Counting(database, connections=6) as store:
        for level in range(3):
            await enqueue(store, 10, level=level)
        async with relaying(store, app, claim_max=claim_max) as relay:
            await relay.seen.that(lambda: gate.inside == claim_max, what="the hand to be full")
            await relay.seen.next("heartbeat.stop", count=2)
            assert gate.most == claim_max
            gate.open()
            await relay.seen.until("message.delivered", count=30)
    # What is settled but not written yet is leased too; what was asked for never went beyond the limit.
    assert max(sum(room.room for room in asked) for asked in store.asked) == claim_max


@pytest.mark.req("G-24")
async def test_with_all_levels_full_one_claim_takes_of_each(database: str, app: App) -> None:
    gate = Gate()

    @app.destination("shop", concurrency=10)
    async def handle(attempt: Attempt) -> None:
        await gate(attempt.id)

    async with Counting(database, connections=6) as store:
        for level in range(3):
            await enqueue(store, 10, level=level)
        async with relaying(store, app) as relay:
            await relay.seen.that(lambda: gate.inside == 10, what="all slots in use")
            rows = await store.rows(
                "SELECT level, count(*) FROM redrive.lease GROUP BY level ORDER BY level -- redrive.(", []
            )
            assert [tuple(row) for row in rows] == [(0, 6), (1, 3), (2, 1)]
            assert len(store.asked) == 1
            gate.open()
            await relay.seen.until("message.delivered", count=30)


@pytest.mark.req("G-24")
async def test_a_single_slot_finds_the_messages_of_every_level(store: PostgresStore, app: App) -> None:
    """Room for one means one level at a time: a look that found nothing there goes on to the next at once."""
    done: list[int] = []

    @app.destination("shop", concurrency=1)
    async def handle(attempt: Attempt) -> None:
        done.append(attempt.level)

    async with relaying(store, app, claim_max=1) as relay:
        for level in (2, 1, 0, 2):
            await enqueue(store, 1, level=level)
            await relay.seen.until("message.delivered", count=len(done) + 1)
    assert done == [2, 1, 0, 2]


@pytest.mark.req("G-08")
async def test_idle_looks_come_at_the_pace_of_the_steps_and_then_of_the_poll(store: PostgresStore, app: App) -> None:
    @app.destination("shop")
    async def handle(attempt: Attempt) -> None: ...

    async with relaying(store, app, poll_seconds=0.3, heartbeat_seconds=5, lease_seconds=15) as relay:
        await relay.seen.until("relay.idle", count=6)
        before = asyncio.get_running_loop().time()
        await relay.seen.next("relay.idle", count=2)
        assert asyncio.get_running_loop().time() - before >= 0.3
        assert len(relay.seen.of("claim.stop")) == len(relay.seen.of("relay.idle"))


async def test_what_was_enqueued_is_delivered_once_and_nothing_is_left(store: PostgresStore, app: App) -> None:
    delivered: list[Attempt] = []

    @app.destination("shop")
    async def handle(attempt: Attempt) -> None:
        delivered.append(attempt)

    ids = await enqueue(store, 250)
    async with relaying(store, app) as relay:
        await relay.seen.until("message.delivered", count=250)
        assert settled(relay.seen) == 250
    assert sorted(attempt.id for attempt in delivered) == sorted(ids)
    assert {attempt.number for attempt in delivered} == {1}
    assert await states(store) == {"delivered": 250}
