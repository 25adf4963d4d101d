"""settle: what the settlement says is what becomes of the message."""

from __future__ import annotations

from dataclasses import replace

import pytest

from redrive import answers
from redrive.answers import Delivered
from redrive.message import Closed, ParkReason
from redrive.policy import Settlement, SettlementKind
from redrive.ports import Outcome, Settled
from redrive.redact import LONG_TEXT_MAX
from tests.conformance.steps import (
    ACT,
    ALICE,
    BOB,
    MAIL,
    advanced,
    at,
    claim,
    claim_alone,
    claim_one,
    crashed,
    delivered,
    enqueue,
    parked,
    retried,
    settle,
)
from tests.conformance.subjects import Subject
from tests.model_store.transitions import Parked, Pending


def pending(store: Subject) -> Pending:
    (place,) = store.places().values()
    assert isinstance(place, Pending)
    return place


def the_parked(store: Subject) -> Parked:
    (place,) = store.places().values()
    assert isinstance(place, Parked)
    return place


@pytest.mark.req("G-28")
async def test_a_delivered_message_is_closed(store: Subject) -> None:
    id = enqueue(store)
    await settle(store, delivered(await claim_one(store), reference="m-1"), now=at(1))
    assert store.state_of(id) == "delivered"
    (row,) = await store.history(id)
    assert (row.settlement, row.answer, row.closed, row.reference) == ("close", "delivered", "delivered", "m-1")
    assert (row.spent, row.latency_ms, row.code, row.result) == (1, 12, None, None)


async def test_a_delivered_message_keeps_its_result(store: Subject) -> None:
    id = enqueue(store)
    await settle(store, delivered(await claim_one(store), reference="m-1", result={"a": [1, None]}))
    (row,) = await store.history(id)
    assert (row.closed, row.reference, row.result) == ("delivered", "m-1", {"a": [1, None]})


async def test_a_mixed_batch_is_settled_in_one_call(store: Subject) -> None:
    for seconds in range(4):
        enqueue(store, now=at(seconds))
    attempts = sorted(await claim(store, now=at(9)), key=lambda a: a.created_at)
    outcomes = [
        delivered(attempts[0]),
        retried(attempts[1]),
        parked(attempts[2]),
        delivered(attempts[3], result=1),
    ]
    assert await store.settle(ALICE, outcomes, now=at(10)) == Settled(4, [], [])
    assert [store.state_of(a.id) for a in attempts] == ["delivered", "pending", "parked", "delivered"]


async def test_whole_and_broken_delays_fit_one_batch(store: Subject) -> None:
    for seconds in range(2):
        enqueue(store, now=at(seconds))
    first, second = await claim(store, now=at(9))
    outcomes = [retried(first, delay_seconds=3), retried(second, delay_seconds=0.5)]
    assert (await store.settle(ALICE, outcomes, now=at(10))).settled == 2


async def test_no_outcomes_settle_nothing(store: Subject) -> None:
    assert await store.settle(ALICE, [], now=at(0)) == Settled(0, [], [])


@pytest.mark.req("G-11")
@pytest.mark.req("G-12")
async def test_a_retry_waits_for_its_delay_with_its_counts(store: Subject) -> None:
    id = enqueue(store)
    await settle(store, retried(await claim_one(store), delay_seconds=7.5, lookups=3), now=at(1))
    place = pending(store)
    assert (place.due_at, place.attempt, place.spent, place.lookups) == (at(8.5), 1, 1, 3)
    assert (place.policy_version, place.suspect, place.crashes) == ("p2", False, 0)
    (row,) = await store.history(id)
    assert (row.settlement, row.answer, row.code, row.text) == ("retry", "retryable", "HTTP_503", "Try later.")
    assert (row.due_at, row.closed, row.spent) == (at(8.5), None, 1)
    assert await claim(store, now=at(8.4)) == []
    attempt = await claim_one(store, now=at(8.5))
    assert (attempt.number, attempt.spent, attempt.lookups) == (2, 1, 3)


@pytest.mark.req("G-13")
async def test_doubt_begins_with_the_attempt_that_raised_it(store: Subject) -> None:
    enqueue(store)
    await settle(store, retried(await claim_one(store), in_doubt=True), now=at(3))
    assert pending(store).in_doubt_since == at(3)
    assert (await claim_one(store, now=at(4))).in_doubt_since == at(3)


@pytest.mark.req("G-13")
async def test_doubt_that_lasts_keeps_its_beginning(store: Subject) -> None:
    enqueue(store)
    await settle(store, retried(await claim_one(store), in_doubt=True), now=at(3))
    await settle(store, retried(await claim_one(store, now=at(4)), in_doubt=True), now=at(5))
    assert pending(store).in_doubt_since == at(3)


@pytest.mark.req("G-13")
async def test_doubt_that_a_lookup_ended_begins_anew_with_the_next(store: Subject) -> None:
    enqueue(store)
    await settle(store, retried(await claim_one(store), in_doubt=True), now=at(3))
    absent = replace(await claim_one(store, now=at(4)), in_doubt_since=None)
    await settle(store, retried(absent, in_doubt=True), now=at(6))
    assert pending(store).in_doubt_since == at(6)


@pytest.mark.req("G-13")
async def test_doubt_ends_with_a_settlement_that_says_so(store: Subject) -> None:
    enqueue(store)
    await settle(store, retried(await claim_one(store), in_doubt=True), now=at(3))
    await settle(store, retried(await claim_one(store, now=at(4))), now=at(5))
    assert pending(store).in_doubt_since is None


@pytest.mark.req("G-12")
async def test_down_since_is_the_first_of_an_unbroken_row_of_downs(store: Subject) -> None:
    enqueue(store)
    await settle(store, retried(await claim_one(store), down=True), now=at(1))
    await settle(store, retried(await claim_one(store, now=at(2)), down=True), now=at(3))
    attempt = await claim_one(store, now=at(4))
    assert attempt.down_since == at(1)
    await settle(store, retried(attempt), now=at(5))
    assert pending(store).down_since is None


@pytest.mark.req("G-15")
async def test_first_failed_at_stays_and_last_failed_at_moves(store: Subject) -> None:
    enqueue(store)
    await settle(store, retried(await claim_one(store)), now=at(1))
    await settle(store, retried(await claim_one(store, now=at(2))), now=at(3))
    attempt = await claim_one(store, now=at(4))
    assert attempt.first_failed_at == at(1)
    await settle(store, parked(attempt), now=at(5))
    place = the_parked(store)
    assert (place.first_failed_at, place.last_failed_at, place.parked_at) == (at(1), at(5), at(5))


@pytest.mark.req("G-12")
async def test_an_advance_goes_on_as_the_same_message_with_a_fresh_budget(store: Subject) -> None:
    id = enqueue(store)
    await settle(store, retried(await claim_one(store)), now=at(1))
    outcome = advanced(await claim_one(store, now=at(2)), "notify", result={"n": 1}, destination="bank")
    await settle(store, outcome, now=at(3))
    attempt = await claim_one(store, now=at(3), destination="bank")
    assert (attempt.id, attempt.stage, attempt.destination, attempt.number) == (id, "notify", "bank", 3)
    assert (attempt.spent, attempt.lookups, attempt.first_failed_at) == (0, 0, None)
    assert attempt.results() == {"first": {"n": 1}}
    row = (await store.history(id))[-1]
    assert (row.stage, row.settlement, row.answer, row.due_at) == ("first", "advance", "advance", None)


async def test_an_advance_without_a_destination_stays_where_it_is(store: Subject) -> None:
    enqueue(store)
    await settle(store, advanced(await claim_one(store), "second"))
    assert (pending(store).destination, pending(store).stage) == (MAIL, "second")


@pytest.mark.req("G-15")
@pytest.mark.req("G-27")
@pytest.mark.parametrize("reason", list(ParkReason))
async def test_a_parked_record_says_why(store: Subject, reason: ParkReason) -> None:
    id = enqueue(store)
    outcome = parked(await claim_one(store), reason)
    await settle(store, replace(outcome, settlement=replace(outcome.settlement, exhausted=True)), now=at(1))
    place = the_parked(store)
    assert (place.id, place.reason, place.error_class) == (id, reason, outcome.settlement.error_class)
    assert (place.last_text, place.last_stack, place.context) == (
        "It was refused.",
        "ValueError",
        {"stage": "first"},
    )
    assert (place.attempt, place.spent, place.exhausted, place.halts) == (1, 1, True, True)
    assert place.in_doubt_since == (at(1) if reason is ParkReason.HELD else None)
    assert (place.kept_answer is not None) == (reason is ParkReason.UNRECORDED)
    (row,) = await store.history(id)
    assert (row.settlement, row.closed, row.code) == ("park", None, place.error_class)


@pytest.mark.req("G-27")
async def test_a_kept_answer_stays_with_a_message_that_is_parked_again(store: Subject) -> None:
    id = enqueue(store)
    await settle(store, parked(await claim_one(store), ParkReason.UNRECORDED), now=at(1))
    await store.repair(id, **ACT, now=at(2))
    attempt = await claim_one(store, now=at(3))
    assert attempt.kept_answer == answers.to_json(Delivered("r-1"))
    await settle(store, replace(parked(attempt, ParkReason.UNRECORDED), kept_answer=None), now=at(4))
    assert the_parked(store).kept_answer == answers.to_json(Delivered("r-1"))


async def test_a_retry_drops_the_kept_answer(store: Subject) -> None:
    id = enqueue(store)
    await settle(store, parked(await claim_one(store), ParkReason.UNRECORDED), now=at(1))
    await store.repair(id, **ACT, now=at(2))
    await settle(store, retried(await claim_one(store, now=at(3))), now=at(4))
    assert pending(store).kept_answer is None


@pytest.mark.req("G-24")
@pytest.mark.parametrize("closed", [Closed.EXPIRED, Closed.CANCELLED])
async def test_an_attempt_can_end_without_an_answer(store: Subject, closed: Closed) -> None:
    id = enqueue(store)
    attempt = await claim_one(store)
    settlement = Settlement(kind=SettlementKind.CLOSE, closed=closed, spent=0)
    await settle(store, Outcome(attempt=attempt, settlement=settlement))
    assert store.state_of(id) == closed
    (row,) = await store.history(id)
    assert (row.answer, row.closed, row.worker) == (None, closed, ALICE)


@pytest.mark.req("G-18")
async def test_a_message_that_crashed_alone_stays_a_suspect_through_a_retry(store: Subject) -> None:
    await crashed(store)
    await claim_alone(store, now=at(1))
    await store.reap(limit=1, worker=BOB, now=at(2))
    attempt = await claim_alone(store, now=at(3))
    assert attempt.crashes == 1
    await settle(store, retried(attempt), worker=BOB, now=at(4))
    assert (pending(store).suspect, pending(store).crashes) == (True, 1)
    assert await claim(store, now=at(5)) == []


@pytest.mark.req("G-18")
async def test_a_bystander_of_a_crash_is_an_ordinary_message_after_a_retry(store: Subject) -> None:
    await crashed(store)
    await settle(store, retried(await claim_alone(store, now=at(1))), worker=BOB, now=at(2))
    assert (pending(store).suspect, pending(store).crashes) == (False, 0)
    assert (await claim_one(store, now=at(3))).number == 3


@pytest.mark.req("G-24")
@pytest.mark.parametrize("how", ["retry", "advance"])
async def test_a_cancel_asked_for_meanwhile_ends_what_would_go_on(store: Subject, how: str) -> None:
    id = enqueue(store)
    attempt = await claim_one(store)
    await store.cancel(id, now=at(1))
    outcome = retried(attempt, delay_seconds=60) if how == "retry" else advanced(attempt, "second")
    await settle(store, outcome, now=at(2))
    assert store.state_of(id) == "cancelled"
    (row,) = await store.history(id)
    assert (row.verb, row.settlement, row.closed, row.due_at) == ("settle", how, "cancelled", None)


@pytest.mark.req("G-13")
@pytest.mark.req("G-24")
async def test_a_cancel_leaves_a_retry_in_doubt_to_be_looked_up(store: Subject) -> None:
    id = enqueue(store)
    attempt = await claim_one(store)
    await store.cancel(id, now=at(1))
    await settle(store, retried(attempt, in_doubt=True), now=at(2))
    again = await claim_one(store, now=at(3))
    assert (again.id, again.cancel_requested, again.in_doubt_since) == (id, True, at(2))


@pytest.mark.req("G-24")
@pytest.mark.parametrize("how", ["delivered", "parked"])
async def test_a_cancel_asked_for_meanwhile_does_not_deny_what_happened(store: Subject, how: str) -> None:
    id = enqueue(store)
    attempt = await claim_one(store)
    await store.cancel(id, now=at(1))
    await settle(store, delivered(attempt) if how == "delivered" else parked(attempt), now=at(2))
    assert store.state_of(id) == how


async def test_a_long_reference_and_text_are_cut_and_made_storable(store: Subject) -> None:
    id = enqueue(store)
    outcome = delivered(await claim_one(store), reference="r\0" * 400, result=1)
    await settle(store, replace(outcome, text="t\0" * 40_000))
    (row,) = await store.history(id)
    assert row.reference == "r\N{REPLACEMENT CHARACTER}" * 250
    assert row.text == "t\N{REPLACEMENT CHARACTER}" * (LONG_TEXT_MAX // 2)


@pytest.mark.req("P-13")
@pytest.mark.parametrize("order_by", [None, "k"])
async def test_an_advance_into_a_destination_of_a_system_is_parked_and_the_others_of_the_call_go_on(
    store: Subject, order_by: str | None
) -> None:
    stopped, goes_on = enqueue(store, order_by=order_by), enqueue(store)
    attempts = {one.id: one for one in await claim(store)}
    outcomes = [
        advanced(attempts[stopped], "second", result={"x": 1}, destination="payments.sepa"),
        advanced(attempts[goes_on], "second", destination="bank"),
    ]
    assert (await store.settle(ALICE, outcomes, now=at(1))).settled == 2
    place, other = store.place_of(stopped), store.place_of(goes_on)
    assert isinstance(place, Parked)
    assert (place.reason, place.error_class, place.destination, place.stage) == (
        ParkReason.DEAD,
        "DESTINATION_OWNED",
        MAIL,
        "first",
    )
    assert place.halts
    assert isinstance(other, Pending)
    assert (other.destination, other.stage) == ("bank", "second")
    (row,) = await store.history(stopped)
    assert (row.settlement, row.code, row.closed) == ("park", "DESTINATION_OWNED", None)


@pytest.mark.req("G-31")
async def test_a_retry_can_come_back_as_a_suspect(store: Subject) -> None:
    """Its handler runs on in a thread: the next attempt is for a process that can be ended."""
    id = enqueue(store)
    await settle(store, replace(retried(await claim_one(store), in_doubt=True), suspect=True), now=at(1))
    assert (pending(store).suspect, pending(store).crashes, pending(store).spent) == (True, 0, 1)
    assert await claim(store, now=at(2)) == []
    attempt = await claim_alone(store, now=at(2))
    assert attempt.id == id
    await settle(store, retried(attempt), worker=BOB, now=at(3))
    assert not pending(store).suspect  # it was answered: there is nothing to be suspected of
