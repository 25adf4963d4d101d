"""A paused destination is left alone, by an operator's word or because of bugs; resumed it goes on (G-10, G-25)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import psycopg
import pytest

import redrive
from redrive.answers import Advance, Delivered, Retryable, Terminal
from redrive.app import App
from redrive.message import Attempt, NewMessage, WorkerId
from redrive.policy import Backoff, Policy
from redrive.ports import Claimed, ClaimRequest
from redrive.store.runtime.postgres import PostgresStore
from tests.model_store.model import ModelStore
from tests.relay.harness import Gate, enqueue, relaying, settled, states

LATER = Policy(backoff=Backoff(initial_seconds=3600, max_seconds=3600, jitter="none"))
BY: dict[str, Any] = {"actor": "ada", "reason": "maintenance"}


@pytest.mark.req("G-25")
async def test_paused_hands_back_what_waits_claims_nothing_and_goes_on_when_resumed(
    store: PostgresStore, app: App
) -> None:
    gate = Gate()

    @app.destination("shop", concurrency=2)
    async def handle(attempt: Attempt) -> None:
        await gate(attempt.id)

    @app.destination("other")
    async def other(attempt: Attempt) -> None: ...

    await enqueue(store, 6)
    async with relaying(store, app, horizon_seconds=10) as relay:
        relay.relay._queues["shop"].capacity.latency_seconds = 1.0
        await relay.seen.that(lambda: gate.inside == 2, what="two to run")
        await relay.seen.that(lambda: len(relay.relay._leases.claims) == 6, what="all in hand")
        await store.pause("shop", **BY)
        await relay.seen.until("destination.paused", destination="shop")
        await relay.seen.until("hand_back.stop", count=1)
        assert await states(store) == {"leased": 2, "pending": 4}
        gate.open()
        await relay.seen.until("message.delivered", count=2)
        await enqueue(store, 1, destination="other")
        await relay.seen.until("message.delivered", destination="other")
        await relay.seen.next("heartbeat.stop", count=2)
        assert len(gate.entered) == 2
        await store.resume("shop", **BY)
        await relay.seen.until("destination.resumed", destination="shop")
        await relay.seen.until("message.delivered", count=6, destination="shop")
    rows = await store.rows("SELECT max(spent) FROM redrive.attempt WHERE verb = 'hand_back'", [])
    assert rows[0][0] == 0


class Delayed(ModelStore):
    """The reply to a claim can be held up."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = asyncio.Event()
        self.go_on.set()

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


@pytest.mark.req("G-25")
async def test_a_claim_that_was_on_its_way_when_the_pause_came_is_handed_back_and_not_stuck(app: App) -> None:
    handled: list[object] = []

    @app.destination("shop", concurrency=10)
    async def handle(attempt: Attempt) -> None:
        handled.append(attempt.id)

    store = Delayed()
    store.go_on.clear()
    ids = [store.enqueue(NewMessage("shop", {})).id for _ in range(10)]
    async with relaying(store, app) as relay:
        await relay.seen.until("claim.start")
        await store.pause("shop", **BY)
        await relay.seen.until("destination.paused")
        store.go_on.set()
        await relay.seen.until("hand_back.stop")
        assert {store.state_of(id) for id in ids} == {"pending"}
        assert handled == []
        await store.resume("shop", **BY)
        await relay.seen.until("message.delivered", count=10)


def raising(app: App, error: Callable[[Attempt], BaseException | None], **options: Any) -> None:
    @app.destination("shop", **{"concurrency": 1, "policy": LATER, **options})
    async def handle(attempt: Attempt) -> None:
        raised = error(attempt)
        if raised is not None:
            raise raised


@pytest.mark.req("G-10")
async def test_ten_bugs_in_a_row_pause_the_destination_and_the_rest_stays_pending(
    store: PostgresStore, app: App
) -> None:
    raising(app, lambda _: KeyError("x"))
    await enqueue(store, 60)
    async with relaying(store, app) as relay:
        await relay.seen.until("destination.paused", destination="shop", reason="bug")
        await relay.seen.next("heartbeat.stop", count=3)
        assert settled(relay.seen) == 10
    assert await states(store) == {"parked·dead": 10, "pending": 50}
    rows = await store.rows("SELECT name, pause_reason, paused_by FROM redrive.destination", [])
    assert [tuple(row) for row in rows] == [("shop", "bug", "relay test")]
    classes = await store.rows("SELECT DISTINCT error_class FROM redrive.parked", [])
    assert [tuple(row) for row in classes] == [("UNCLASSIFIED",)]


@pytest.mark.req("G-10")
async def test_a_handler_that_returns_what_cannot_be_kept_pauses_its_destination_before_a_second_effect(
    store: PostgresStore, app: App
) -> None:
    """Its effect has happened, and every message more would be one more effect that looks like a failure."""
    effects: list[object] = []

    @app.destination("shop", concurrency=1)
    async def handle(attempt: Attempt) -> object:
        effects.append(attempt.id)
        return object()

    await enqueue(store, 12)
    async with relaying(store, app) as relay:
        await relay.seen.until("destination.paused", destination="shop", reason="bug")
        await relay.seen.next("heartbeat.stop", count=3)
    assert len(effects) == 1
    assert await states(store) == {"parked·dead": 1, "pending": 11}
    ((code, text),) = await store.rows("SELECT error_class, last_text FROM redrive.parked", [])
    assert code == "RETURN_INVALID"
    assert "its effect has probably happened" in text
    assert "type object" in text


@pytest.mark.req("G-10")
async def test_a_returned_value_that_is_json_is_delivered_and_kept_as_the_result(
    store: PostgresStore, app: App
) -> None:
    @app.destination("shop")
    def handle(attempt: Attempt) -> object:
        return {"receipt": ["r-1", None, "a\x00b", "\ud800"]}

    (id,) = await enqueue(store)
    async with relaying(store, app) as relay:
        await relay.seen.until("message.delivered")
    ((result,),) = await store.rows("SELECT result::text FROM redrive.attempt WHERE message_id = %s", [id])
    assert json.loads(result) == {"receipt": ["r-1", None, "a\x00b", "\ud800"]}


@pytest.mark.req("G-10")
async def test_with_several_slots_at_most_those_in_flight_are_parked_beyond_the_ten(
    store: PostgresStore, app: App
) -> None:
    raising(app, lambda _: KeyError("x"), concurrency=5)
    await enqueue(store, 60)
    async with relaying(store, app) as relay:
        await relay.seen.until("destination.paused", reason="bug")
        await relay.seen.next("heartbeat.stop", count=3)
    found = await states(store)
    assert 10 <= found["parked·dead"] <= 14
    assert found["pending"] == 60 - found["parked·dead"]


@pytest.mark.req("G-10")
async def test_resumed_after_a_repair_it_goes_on_and_counts_from_the_beginning(store: PostgresStore, app: App) -> None:
    broken = [True]
    raising(app, lambda _: KeyError("x") if broken[0] else None)
    await enqueue(store, 25)
    async with relaying(store, app) as relay:
        await relay.seen.until("destination.paused", reason="bug")
        broken[0] = False
        await store.resume("shop", **BY)
        await relay.seen.until("message.delivered", count=15)
    assert await states(store) == {"parked·dead": 10, "delivered": 15}


@pytest.mark.req("G-10")
@pytest.mark.parametrize("success", [Delivered("r"), Advance("second")], ids=repr)
async def test_a_success_between_starts_the_count_again(app: App, success: BaseException) -> None:
    """Every ninth message goes well: nothing is paused."""
    store = ModelStore()
    for number in range(45):
        store.advance(1)
        store.enqueue(NewMessage("shop", {"well": number % 9 == 8}))
    ends = {("first", True): success, ("first", False): KeyError("x"), ("second", True): None}
    raising(app, lambda a: ends[a.stage, a.payload["well"]])
    async with relaying(store, app) as relay:
        await relay.seen.until("message.parked", count=40)
        assert relay.seen.of("pause.start") == []


@pytest.mark.req("G-10")
@pytest.mark.parametrize("between", [Retryable("BUSY"), Terminal("NO")], ids=repr)
async def test_an_answer_that_is_no_success_does_not_start_it_again(app: App, between: BaseException) -> None:
    store = ModelStore()
    for number in range(30):
        store.advance(1)
        store.enqueue(NewMessage("shop", {"between": number % 2 == 0}))
    raising(app, lambda a: between if a.payload["between"] else KeyError("x"))
    async with relaying(store, app) as relay:
        await relay.seen.until("destination.paused", reason="bug")
        assert len(relay.seen.of("message.parked", code="UNCLASSIFIED")) <= 10


@pytest.mark.req("G-10")
async def test_a_destination_that_completes_by_itself_has_successes_too(
    database: str, store: PostgresStore, app: App
) -> None:
    @app.destination("shop", concurrency=1, policy=LATER)
    async def handle(attempt: Attempt) -> None:
        if not attempt.payload["well"]:
            raise KeyError("x")
        async with await psycopg.AsyncConnection.connect(database) as conn:
            await redrive.acomplete(conn, attempt)

    for number in range(24):
        await enqueue(store, body=b'{"well":true}' if number % 6 == 5 else b'{"well":false}')
    async with relaying(store, app) as relay:
        await relay.seen.until("message.parked", count=20)
        assert relay.seen.of("pause.start") == []
    assert await states(store) == {"parked·dead": 20, "delivered": 4}
