"""Leases: kept alive while something runs; lost ones are let go, and their late outcomes refused (G-14)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, cast
from uuid import uuid4

import pytest

from redrive.answers import Absent, Delivered, LookupAnswer
from redrive.app import App
from redrive.events import Events
from redrive.message import Attempt, Fence, MessageId, NewMessage, WorkerId
from redrive.ports import RelayInfo, Store
from redrive.relay.build import SystemClock
from redrive.relay.claiming.claim import Claim
from redrive.relay.claiming.leases import WAIT_SECONDS, WAITERS_MAX, Leases
from redrive.relay.context import RelayContext
from redrive.relay.dispatching.queues import DestinationQueues
from redrive.settings import RelayLimits
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


class HeldOpen:
    """A store in which other transactions hold these claims, and never end. waited_for: destinations."""

    def __init__(self, claims: Sequence[Claim]) -> None:
        self.held = {claim.fence: claim.attempt.destination for claim in claims}
        self.waited_for: list[str] = []

    async def hand_back(
        self, worker: WorkerId, fences: Sequence[Fence], *, wait: bool, **options: Any
    ) -> Sequence[Fence]:
        held = [self.held[fence] for fence in fences if fence in self.held]
        if held and wait:
            self.waited_for += held
            await asyncio.Event().wait()
        return [fence for fence in fences if fence not in self.held]


class NoQueues:
    def freed(self) -> None: ...


@pytest.mark.req("G-31")
async def test_claims_of_one_destination_that_cannot_go_back_leave_waiters_to_the_next() -> None:
    """One of another would wait for hours behind a thousand whose cancels are left open."""
    context = RelayContext(
        store=cast("Store", None),
        info=RelayInfo(worker=m.WORKER, name="r", host="h", pid=1, version="0", destinations=[]),
        limits=RelayLimits(),
        clock=SystemClock(),
        events=Events(),
    )
    leases = Leases(context, cast("DestinationQueues", NoQueues()))

    def claims(destination: str, count: int) -> list[Claim]:
        attempts = [m.attempt(id=MessageId(uuid4()), destination=destination) for _ in range(count)]
        return [leases.take(attempt, asked_at=0.0, received_at=0.0) for attempt in attempts]

    many, one = claims("shop", 10), claims("mail", 1)
    store = HeldOpen([*many, *one])
    context.store = cast("Store", store)
    try:
        await leases.hand_back(many)
        await waited(lambda: len(store.waited_for) == WAITERS_MAX)
        await leases.hand_back(one)
        await waited(lambda: "mail" in store.waited_for)
        assert store.waited_for.count("shop") == WAITERS_MAX
    finally:
        context.tasks.cancel()


async def waited(condition: Callable[[], bool]) -> None:
    """Less than the time after which a waiter makes room by itself."""
    async with asyncio.timeout(WAIT_SECONDS - 1):
        while not condition():  # noqa: ASYNC110 - a store that is waited for says nothing
            await asyncio.sleep(0.01)


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
