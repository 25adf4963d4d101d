"""Leases: kept alive while something runs; lost ones are let go, and their late outcomes refused (G-14)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime

import pytest

from redrive.answers import Absent, Delivered, LookupAnswer
from redrive.app import App
from redrive.message import Attempt, Fence, NewMessage, WorkerId
from redrive.store.runtime.postgres import PostgresStore
from tests.model_store.model import ModelStore
from tests.relay.harness import Gate, enqueue, history, processing, relaying, states
from tests.support import messages as m

pytestmark = pytest.mark.req("G-14")


async def test_a_handler_may_take_longer_than_a_lease(database: str, store: PostgresStore, app: App) -> None:
    """With the reaper at work all the time."""
    gate = Gate()

    @app.destination("shop", concurrency=2)
    async def handle(attempt: Attempt) -> None:
        await gate(attempt.id)

    (first,) = await enqueue(store)
    async with processing(database, app, lease_seconds=1.0, reap_every_seconds=0.1) as seen:
        await seen.that(lambda: gate.inside == 1, what="it to run")
        ((claimed,),) = await store.rows("SELECT until FROM redrive.lease", [])
        await seen.until("renew.stop", count=8)
        assert await store.now() > claimed, "the test has not outlasted the lease"
        assert sum(told["requeued"] for told in seen.of("reap.stop")) == 0
        gate.open()
        await seen.until("message.delivered")
    assert gate.entered == [first]
    assert await history(store, first) == [("settle", "close", None)]


async def test_a_lost_claim_that_waits_is_dropped_and_one_that_runs_is_refused(store: PostgresStore, app: App) -> None:
    """Somebody declared this worker dead. What it was doing is known, what it had not begun it does not begin."""
    gate = Gate()

    @app.destination("shop", concurrency=1)
    async def handle(attempt: Attempt) -> Delivered:
        await gate(attempt.id)
        return Delivered("late-1")

    await enqueue(store, 3)
    async with relaying(store, app, lease_seconds=1.0, horizon_seconds=10) as relay:
        relay.relay._queues["shop"].capacity.latency_seconds = 1.0
        await relay.seen.that(lambda: len(relay.relay._leases.claims) == 3, what="all three in hand")
        await relay.seen.that(lambda: gate.inside == 1, what="one to run")
        assert (await store.reap(limit=10, worker=relay.worker)).requeued == 3
        await relay.seen.until("message.lease_lost", count=3)
        await relay.seen.that(lambda: len(relay.relay._leases.claims) == 1, what="those that wait to be dropped")
        await relay.seen.next("heartbeat.stop", count=6)
        assert len(relay.seen.of("message.lease_lost")) == 3, "told once each"
        gate.open()
        await relay.seen.until("message.refused")
    assert len(gate.entered) == 1
    assert await states(store) == {"pending": 3}
    rows = await store.rows("SELECT message_id, answer, reference FROM redrive.late_answer", [])
    assert [tuple(row) for row in rows] == [(gate.entered[0], "delivered", "late-1")]


async def test_what_is_lost_while_it_is_looked_up_is_not_sent(app: App) -> None:
    looking, go_on = asyncio.Event(), asyncio.Event()

    async def lookup(attempt: Attempt) -> LookupAnswer:
        looking.set()
        await go_on.wait()
        return Absent()

    @app.destination("shop", lookup=lookup)
    async def handle(attempt: Attempt) -> None:
        raise AssertionError("sent on a claim that was lost")

    class Lost(ModelStore):
        async def renew(
            self, worker: WorkerId, fences: Sequence[Fence], *, lease_seconds: float, now: datetime | None = None
        ) -> Sequence[Fence]:
            return ()

    store = Lost()
    id = store.enqueue(NewMessage("shop", {})).id
    doubtful = (await store.claim(m.OTHER_WORKER, m.PLAIN_ROOMS, lease_seconds=60)).attempts[0]
    await store.settle(m.OTHER_WORKER, [m.outcome(doubtful, m.retry(in_doubt=True, delay_seconds=0.0))])
    async with relaying(store, app, lease_seconds=1.0) as relay:
        async with asyncio.timeout(5):
            await looking.wait()
        await relay.seen.until("message.lease_lost")
        go_on.set()
        await relay.seen.until("hand_back.stop")
        relay.relay.stop()
    assert store.state_of(id) == "pending"


async def test_a_late_outcome_does_not_let_go_of_a_later_claim_of_the_same_message(
    store: PostgresStore, app: App
) -> None:
    """Lost, tried by somebody else, claimed again by the same relay while its first handler still runs."""
    first, second = asyncio.Event(), asyncio.Event()
    begun: list[int] = []

    @app.destination("shop", concurrency=2)
    async def handle(attempt: Attempt) -> None:
        begun.append(attempt.number)
        await (first if attempt.number == 1 else second).wait()

    (id,) = await enqueue(store)
    async with relaying(store, app, lease_seconds=1.0) as relay:
        await relay.seen.that(lambda: begun == [1], what="the first attempt to run")
        await store.reap(limit=10, worker=relay.worker)
        suspect = (await store.claim_suspect(m.OTHER_WORKER, ["shop"], lease_seconds=60)).attempts[0]
        retry = m.outcome(suspect, m.retry(delay_seconds=0.0))
        assert (await store.settle(m.OTHER_WORKER, [retry])).settled == 1
        await relay.seen.that(lambda: begun == [1, 3], what="the third attempt to run beside the first")
        first.set()
        await relay.seen.until("message.refused", attempt=1)
        await relay.seen.next("renew.stop", count=3, lost=0)
        assert await store.is_leased(Fence(id, 3))
        second.set()
        await relay.seen.until("message.delivered", attempt=3)
    assert await states(store) == {"delivered": 1}
