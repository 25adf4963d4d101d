"""The fence: an outcome whose claim was lost changes nothing, and is kept as evidence."""

from __future__ import annotations

import pytest

from redrive.message import Attempt, Fence
from redrive.ports import Settled
from tests.conformance.steps import (
    ALICE,
    BOB,
    MAIL,
    NOBODY,
    at,
    claim,
    claim_alone,
    claim_one,
    delivered,
    enqueue,
    parked,
    retried,
    settle,
)
from tests.conformance.subjects import Subject
from tests.model_store.tables import LateAnswer


@pytest.mark.req("G-14")
async def test_late_outcome_of_a_reaped_claim_is_refused(store: Subject) -> None:
    id = enqueue(store)
    late = await claim_one(store)
    await store.reap(limit=1, worker=ALICE, now=at(1))
    before = store.places()
    settled = await store.settle(ALICE, [delivered(late, reference="m-1")], now=at(2))
    assert settled == Settled(0, [Fence(id, 1)], [])
    assert store.places() == before
    assert store.late_answers == [
        LateAnswer(id, 1, ALICE, at(2), "close", "delivered", None, "m-1", None),
    ]


@pytest.mark.req("G-14")
async def test_late_outcome_is_refused_while_somebody_else_holds_the_message(store: Subject) -> None:
    id = enqueue(store)
    late = await claim_one(store)
    await store.reap(limit=1, worker=ALICE, now=at(1))
    second = await claim_alone(store, now=at(2))
    refused = await store.settle(ALICE, [retried(late)], now=at(3))
    assert refused == Settled(0, [Fence(id, 1)], [])
    assert await store.is_leased(second.fence)
    (evidence,) = store.late_answers
    assert (evidence.settlement, evidence.answer, evidence.code) == ("retry", "retryable", "HTTP_503")
    assert (evidence.text, evidence.worker) == ("Try later.", ALICE)
    await settle(store, delivered(second), worker=BOB, now=at(4))


@pytest.mark.req("G-14")
@pytest.mark.parametrize("other", ["plain", "result", "retry", "park"])
async def test_late_outcome_of_a_message_that_another_has_closed_is_refused(store: Subject, other: str) -> None:
    id = enqueue(store)
    late = await claim_one(store)
    await store.reap(limit=1, worker=ALICE, now=at(1))
    await settle(store, delivered(await claim_alone(store, now=at(2))), worker=BOB, now=at(3))
    outcomes = {
        "plain": delivered(late),
        "result": delivered(late, result=1),
        "retry": retried(late),
        "park": parked(late),
    }
    assert (await store.settle(ALICE, [outcomes[other]], now=at(4))).refused == [Fence(id, 1)]
    assert store.state_of(id) == "delivered"
    assert [row.closed for row in await store.history(id)] == [None, "delivered"]


@pytest.mark.req("G-14")
@pytest.mark.parametrize("how", ["plain", "result", "retry", "park"])
async def test_an_outcome_settled_again_by_its_worker_is_repeated_and_no_evidence(store: Subject, how: str) -> None:
    id = enqueue(store)
    attempt = await claim_one(store)
    outcome = {
        "plain": delivered(attempt),
        "result": delivered(attempt, result=1),
        "retry": retried(attempt),
        "park": parked(attempt),
    }[how]
    await settle(store, outcome, now=at(1))
    before = store.places()
    assert await store.settle(ALICE, [outcome], now=at(2)) == Settled(0, [], [Fence(id, 1)])
    assert (store.places(), len(await store.history(id)), store.late_answers) == (before, 1, [])


@pytest.mark.req("G-14")
async def test_an_outcome_settled_again_by_another_worker_is_refused(store: Subject) -> None:
    id = enqueue(store)
    attempt = await claim_one(store)
    await settle(store, delivered(attempt), now=at(1))
    assert await store.settle(BOB, [delivered(attempt)], now=at(2)) == Settled(0, [Fence(id, 1)], [])


@pytest.mark.req("G-14")
@pytest.mark.parametrize("wait", [True, False])
@pytest.mark.parametrize("how", ["plain", "result", "retry", "park"])
async def test_an_outcome_of_a_worker_that_does_not_hold_the_claim_is_refused_and_kept(
    store: Subject, how: str, *, wait: bool
) -> None:
    """After a restore two relays may both believe that they hold attempt 1: only the one that the lease names does."""
    id = enqueue(store)
    attempt = await claim_one(store)
    outcome = {
        "plain": delivered(attempt),
        "result": delivered(attempt, result=1),
        "retry": retried(attempt),
        "park": parked(attempt),
    }[how]
    assert await store.settle(BOB, [outcome], wait=wait, now=at(1)) == Settled(0, [Fence(id, 1)], [])
    assert store.state_of(id) == "leased"
    assert [late.worker for late in store.late_answers] == [BOB]
    await settle(store, delivered(attempt), now=at(2))


@pytest.mark.req("G-14")
async def test_nothing_is_recorded_for_a_worker_that_does_not_hold_the_claim(store: Subject) -> None:
    id = enqueue(store)
    attempt = await claim_one(store)
    recorded: list[object] = []

    async def record(conn: object, attempt: Attempt, settlement: object) -> None:
        recorded.append(attempt.id)

    settled = await store.settle_one(BOB, delivered(attempt), record, on_step=lambda _: None, now=at(1))
    assert (settled, recorded) == (Settled(0, [Fence(id, 1)], []), [])
    settled = await store.settle_one(ALICE, delivered(attempt), record, on_step=lambda _: None, now=at(2))
    assert (settled, recorded) == (Settled(1, [], []), [id])


@pytest.mark.req("G-14")
async def test_a_handed_back_claim_cannot_be_settled(store: Subject) -> None:
    id = enqueue(store)
    attempt = await claim_one(store)
    await store.hand_back(ALICE, [attempt.fence], now=at(1))
    assert (await store.settle(ALICE, [delivered(attempt)], now=at(2))).refused == [Fence(id, 1)]
    assert store.state_of(id) == "pending"


@pytest.mark.req("G-14")
async def test_a_batch_settles_what_it_holds_and_refuses_the_rest(store: Subject) -> None:
    for seconds in range(3):
        enqueue(store, now=at(seconds))
    kept, lost, done = sorted(await claim(store, now=at(9)), key=lambda a: a.created_at)
    await settle(store, delivered(done), now=at(10))
    await store.hand_back(ALICE, [lost.fence], now=at(10))
    settled = await store.settle(ALICE, [delivered(lost), delivered(kept), delivered(done)], now=at(11))
    assert settled == Settled(1, [lost.fence], [done.fence])


@pytest.mark.req("G-14")
async def test_an_old_and_a_new_claim_of_one_message_in_one_batch_are_told_apart(store: Subject) -> None:
    id = enqueue(store)
    old = await claim_one(store)
    await store.hand_back(ALICE, [old.fence], now=at(1))
    new = await claim_one(store, now=at(2))
    settled = await store.settle(ALICE, [delivered(old), delivered(new)], now=at(3))
    assert settled == Settled(1, [Fence(id, 1)], [])
    assert [late.attempt for late in store.late_answers] == [1]


@pytest.mark.req("G-14")
@pytest.mark.req("G-28")
@pytest.mark.parametrize("how", ["plain", "result", "retry", "park"])
async def test_one_claim_twice_in_one_batch_is_settled_once(store: Subject, how: str) -> None:
    id = enqueue(store)
    attempt = await claim_one(store)
    outcome = {
        "plain": delivered(attempt),
        "result": delivered(attempt, result=1),
        "retry": retried(attempt),
        "park": parked(attempt),
    }[how]
    assert await store.settle(ALICE, [outcome, outcome], now=at(1)) == Settled(1, [], [Fence(id, 1)])
    assert len(await store.history(id)) == 1


@pytest.mark.req("G-14")
async def test_an_outcome_of_a_message_that_never_was_is_refused(store: Subject) -> None:
    enqueue(store)
    attempt = await claim_one(store)
    strange = type(attempt)(**{**vars(attempt), "id": NOBODY})
    assert (await store.settle(ALICE, [retried(strange)], now=at(1))).refused == [Fence(NOBODY, 1)]


@pytest.mark.req("G-14")
async def test_is_leased_asks_for_this_claim_and_no_other(store: Subject) -> None:
    id = enqueue(store)
    assert not await store.is_leased(Fence(id, 1))
    attempt = await claim_one(store)
    assert await store.is_leased(attempt.fence)
    assert not await store.is_leased(Fence(id, 2))
    assert not await store.is_leased(Fence(NOBODY, 1))
    await settle(store, delivered(attempt), now=at(1))
    assert not await store.is_leased(attempt.fence)
    assert attempt.destination == MAIL
