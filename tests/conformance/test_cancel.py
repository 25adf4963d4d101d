"""cancel: after the answer no new dispatch starts, and the answer is true (ruling 14)."""

from __future__ import annotations

import pytest

from redrive.errors import InvalidValue, NotFound
from redrive.message import CancelAnswer
from tests.conformance.steps import (
    ACT,
    CLOSED,
    NOBODY,
    PARKED,
    at,
    claim,
    claim_one,
    enqueue,
    put_into,
    retried,
    settle,
)
from tests.conformance.subjects import Subject
from tests.model_store.transitions import Lease, Pending

pytestmark = pytest.mark.req("G-24")


async def test_a_pending_message_is_cancelled(store: Subject) -> None:
    id = enqueue(store)
    assert await store.cancel(id, actor="ada", reason="wrong address", now=at(1)) is CancelAnswer.CANCELLED
    assert store.state_of(id) == "cancelled"
    (row,) = await store.history(id)
    assert (row.verb, row.closed, row.actor, row.reason) == ("cancel", "cancelled", "ada", "wrong address")
    assert (row.attempt, row.completed_at, row.worker, row.settlement) == (0, at(1), None, None)
    assert await claim(store, now=at(2)) == []


async def test_an_application_cancels_its_own_message_without_an_actor(store: Subject) -> None:
    id = enqueue(store)
    assert await store.cancel(id, now=at(1)) is CancelAnswer.CANCELLED
    (row,) = await store.history(id)
    assert (row.actor, row.reason) == (None, None)


async def test_a_message_not_due_yet_is_cancelled(store: Subject) -> None:
    id = enqueue(store, due_at=at(99))
    assert await store.cancel(id, now=at(1)) is CancelAnswer.CANCELLED


async def test_a_message_in_flight_is_marked_and_said_to_be_in_flight(store: Subject) -> None:
    id = enqueue(store)
    await claim_one(store)
    assert await store.cancel(id, now=at(1)) is CancelAnswer.IN_FLIGHT
    place = store.place_of(id)
    assert isinstance(place, Lease)
    assert place.cancel_requested
    assert await store.history(id) == []


@pytest.mark.req("G-13")
async def test_a_pending_message_in_doubt_is_marked_and_becomes_due(store: Subject) -> None:
    id = enqueue(store)
    await settle(store, retried(await claim_one(store), in_doubt=True, delay_seconds=60), now=at(1))
    assert await store.cancel(id, now=at(2)) is CancelAnswer.IN_DOUBT
    place = store.place_of(id)
    assert isinstance(place, Pending)
    assert (place.cancel_requested, place.due_at) == (True, at(2))
    attempt = await claim_one(store, now=at(2))
    assert (attempt.cancel_requested, attempt.in_doubt_since) == (True, at(1))


@pytest.mark.req("G-13")
async def test_a_cancel_never_makes_a_due_message_wait(store: Subject) -> None:
    id = enqueue(store)
    await settle(store, retried(await claim_one(store), in_doubt=True), now=at(1))
    await store.cancel(id, now=at(5))
    place = store.place_of(id)
    assert isinstance(place, Pending)
    assert place.due_at == at(1)


@pytest.mark.req("G-13")
async def test_a_claim_that_began_in_doubt_is_said_to_be_in_doubt(store: Subject) -> None:
    id = enqueue(store)
    await settle(store, retried(await claim_one(store), in_doubt=True), now=at(1))
    await claim_one(store, now=at(2))
    assert await store.cancel(id, now=at(3)) is CancelAnswer.IN_DOUBT


@pytest.mark.req("G-27")
async def test_a_message_that_waits_for_its_record_is_marked_and_still_recorded(store: Subject) -> None:
    id = await put_into(store, "unrecorded")
    await store.repair(id, **ACT, now=at(2))
    assert await store.cancel(id, now=at(3)) is CancelAnswer.IN_FLIGHT
    attempt = await claim_one(store, now=at(4))
    assert (attempt.id, attempt.cancel_requested, attempt.kept_answer is not None) == (id, True, True)


async def test_a_second_cancel_gives_the_same_answer(store: Subject) -> None:
    id = enqueue(store)
    await claim_one(store)
    answers = [await store.cancel(id, now=at(1)) for _ in range(2)]
    assert answers == [CancelAnswer.IN_FLIGHT, CancelAnswer.IN_FLIGHT]


@pytest.mark.parametrize("state", PARKED)
async def test_a_parked_message_is_for_its_own_acts(store: Subject, state: str) -> None:
    id = await put_into(store, state)
    before = store.place_of(id)
    assert await store.cancel(id, now=at(9)) is CancelAnswer.PARKED
    assert store.place_of(id) == before


@pytest.mark.parametrize("state", CLOSED)
async def test_a_closed_message_stays_as_it_was_closed(store: Subject, state: str) -> None:
    id = await put_into(store, state)
    before = await store.history(id)
    assert await store.cancel(id, now=at(9)) is CancelAnswer.ALREADY_CLOSED
    assert (store.state_of(id), await store.history(id)) == (state, before)


async def test_a_message_that_never_was_cannot_be_cancelled(store: Subject) -> None:
    with pytest.raises(NotFound):
        await store.cancel(NOBODY, now=at(1))


@pytest.mark.req("G-19")
@pytest.mark.parametrize(("actor", "reason"), [("", "why"), ("  ", "why"), ("ada", ""), ("ada", None)])
async def test_an_operators_cancel_needs_an_actor_and_a_reason(store: Subject, actor: str, reason: str | None) -> None:
    id = enqueue(store)
    with pytest.raises(InvalidValue):
        await store.cancel(id, actor=actor, reason=reason, now=at(1))
    assert store.state_of(id) == "pending"
