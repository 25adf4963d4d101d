"""A stop: nothing more is claimed, what has not begun goes back unspent, what runs ends or is Unknown (G-09)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime

import pytest

from redrive.app import App
from redrive.message import Attempt, NewMessage, WorkerId
from redrive.policy import Backoff, Policy
from redrive.ports import Claimed, ClaimRequest, DestinationState, RelayInfo, TransientFailure
from redrive.relay.dispatching import deadlines
from redrive.store.runtime.postgres import PostgresStore
from tests.model_store.model import ModelStore
from tests.relay.harness import Gate, Running, Seen, enqueue, history, processing, relaying, states

pytestmark = pytest.mark.req("G-09")

LATER = Policy(backoff=Backoff(initial_seconds=3600, max_seconds=3600, jitter="none"))


async def test_what_runs_ends_and_what_waits_goes_back_unspent(store: PostgresStore, app: App) -> None:
    gate = Gate()

    @app.destination("shop", concurrency=2)
    async def handle(attempt: Attempt) -> None:
        await gate(attempt.id)

    await enqueue(store, 30)
    async with relaying(store, app, horizon_seconds=10) as relay:
        relay.relay._queues["shop"].capacity.latency_seconds = 0.5  # so that it claims ahead of its slots
        await relay.seen.that(lambda: gate.inside == 2, what="two to run")
        await relay.seen.that(lambda: len(relay.relay._leases.claims) > 2, what="more in hand than runs")
        relay.relay.stop()
        await relay.seen.until("hand_back.stop", count=1)
        claims = len(relay.seen.of("claim.start"))
        assert await states(store) == {"leased": 2, "pending": 28}
        gate.open()
        await relay.ended()
        assert len(relay.seen.of("claim.start")) == claims
    assert gate.most == 2
    assert await states(store) == {"delivered": 2, "pending": 28}
    rows = await store.rows("SELECT spent, count(*) FROM redrive.attempt WHERE verb = 'hand_back' GROUP BY spent", [])
    claimed = sum(told["count"] for told in relay.seen.of("claim.stop"))
    assert [tuple(row) for row in rows] == [(0, claimed - 2)]
    assert relay.seen.all[-1][0] == "relay.stopped"
    assert await store.rows("SELECT 1 FROM redrive.relay", []) == []


async def test_what_does_not_end_in_time_is_unknown_and_no_lease_is_left(store: PostgresStore, app: App) -> None:
    gate = Gate()

    @app.destination("shop", concurrency=3, policy=LATER)
    async def handle(attempt: Attempt) -> None:
        await gate(attempt.id)

    ids = await enqueue(store, 5)
    async with relaying(store, app, stop_seconds=0.1) as relay:
        await relay.seen.that(lambda: gate.inside == 3, what="three to run")
        await relay.stop()
        assert len(relay.seen.of("message.retried", code="CUT_OFF", in_doubt=True)) == 3
    assert await states(store) == {"pending": 5}
    rows = [row for id in ids for row in await history(store, id)]
    assert rows.count(("settle", "retry", "CUT_OFF")) == 3


async def test_a_handler_that_ignores_the_stop_is_settled_as_unknown_all_the_same(
    store: PostgresStore, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadlines, "ABANDON_SECONDS", 0.1)
    release = asyncio.Event()
    running: list[object] = []

    @app.destination("shop", policy=LATER)
    async def handle(attempt: Attempt) -> None:
        running.append(attempt.id)
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    await enqueue(store)
    async with relaying(store, app, stop_seconds=0.05) as relay:
        await relay.seen.that(lambda: bool(running), what="it to run")
        await relay.stop()
        assert relay.seen.of("message.retried", code="CUT_OFF", in_doubt=True)
        release.set()
    assert await states(store) == {"pending": 1}


async def test_a_claim_that_was_on_its_way_is_handed_back(app: App) -> None:
    """Its reply comes after the stop: nothing of it is begun."""

    class Slow(ModelStore):
        go_on: asyncio.Event

        async def claim(
            self,
            worker: WorkerId,
            claim_requests: Sequence[ClaimRequest],
            *,
            lease_seconds: float,
            now: datetime | None = None,
        ) -> Claimed:
            claimed = await super().claim(worker, claim_requests, lease_seconds=lease_seconds, now=now)
            await self.go_on.wait()
            return claimed

    store = Slow()
    store.go_on = asyncio.Event()
    ids = [store.enqueue(NewMessage("shop", {})).id for _ in range(5)]

    @app.destination("shop")
    async def handle(attempt: Attempt) -> None:
        raise AssertionError

    async with relaying(store, app) as relay:
        await relay.seen.until("claim.start")
        relay.relay.stop()
        store.go_on.set()
        await relay.ended()
    assert {store.state_of(id) for id in ids} == {"pending"}
    assert {entry.verb for id in ids for entry in await store.history(id)} == {"hand_back"}


@pytest.mark.req("G-29")
async def test_a_heartbeat_that_crosses_the_end_does_not_register_again(app: App) -> None:
    """It finds no row because the relay has just said good-bye: no ghost of it may stay behind."""

    class Crossing(ModelStore):
        gone: asyncio.Event

        async def heartbeat(
            self, worker: WorkerId, *, listener: str = "off", now: datetime | None = None
        ) -> Sequence[DestinationState]:
            await self.gone.wait()
            return await super().heartbeat(worker, listener=listener, now=now)

        async def deregister(self, worker: WorkerId) -> None:
            await super().deregister(worker)
            self.gone.set()
            await asyncio.sleep(0.01)

    @app.destination("shop")
    async def handle(attempt: Attempt) -> None: ...

    store = Crossing()
    store.gone = asyncio.Event()
    async with relaying(store, app) as relay:
        await relay.seen.until("heartbeat.start")
    assert len(relay.seen.of("register.start")) == 1


async def test_a_stop_before_the_database_was_ever_reached_ends_at_once(app: App) -> None:
    class Away(ModelStore):
        async def register(self, relay: RelayInfo, *, now: datetime | None = None) -> None:
            raise TransientFailure

    @app.destination("shop")
    async def handle(attempt: Attempt) -> None: ...

    running = Running(Away(), app, Seen())
    await running.seen.until("relay.unreachable")
    await running.stop()
    assert running.seen.of("claim.start") == []


async def test_a_cancelled_process_stops_gracefully(database: str, store: PostgresStore, app: App) -> None:
    gate = Gate()

    @app.destination("shop", concurrency=1)
    async def handle(attempt: Attempt) -> None:
        await gate(attempt.id)

    await enqueue(store, 3)
    async with processing(database, app) as seen:
        await seen.that(lambda: gate.inside == 1, what="one to run")
        asyncio.get_running_loop().call_later(0.1, gate.open)
    assert await states(store) == {"delivered": 1, "pending": 2}


async def test_a_relay_that_is_cancelled_outright_leaves_no_task_behind(store: PostgresStore, app: App) -> None:
    gate = Gate()

    @app.destination("shop", concurrency=2)
    async def handle(attempt: Attempt) -> None:
        await gate(attempt.id)

    await enqueue(store, 5)
    running = Running(store, app, Seen())
    await running.seen.that(lambda: gate.inside == 2, what="two to run")
    running.task.cancel()
    await asyncio.wait([running.task])
    await running.seen.that(lambda: gate.inside == 0, what="the handlers to be cancelled")
    assert gate.most == 2
    assert len(gate.entered) == 2
