"""The five ways out of parked: each fits one reason (discard: all), and is refused everywhere else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from redrive import answers
from redrive.answers import Delivered
from redrive.errors import ActRefused, InvalidValue, NotFound
from redrive.message import MessageId, ParkReason
from redrive.ports import RelayInfo
from tests.conformance.steps import (
    ACT,
    ALICE,
    BOB,
    MAIL,
    NOBODY,
    PARKED,
    STATES,
    at,
    claim_alone,
    claim_one,
    crashed,
    delivered,
    enqueue,
    parked,
    put_into,
    retried,
    settle,
)
from tests.conformance.subjects import Subject
from tests.model_store.transitions import Pending

pytestmark = pytest.mark.req("G-27")

FITS = {
    "requeue": {"dead"},
    "confirm": {"dead", "held"},
    "deny": {"held"},
    "repair": {"unrecorded"},
    "discard": set(PARKED),
}


async def act(store: Subject, verb: str, id: MessageId, **values: Any) -> None:
    verbs: dict[str, Callable[..., Awaitable[None]]] = {
        "requeue": store.requeue,
        "confirm": store.confirm,
        "deny": store.deny,
        "repair": store.repair,
        "discard": store.discard,
    }
    await verbs[verb](id, **{**ACT, "now": at(9), **values})


def pending(store: Subject, id: MessageId) -> Pending:
    place = store.place_of(id)
    assert isinstance(place, Pending)
    return place


@pytest.mark.req("G-28")
@pytest.mark.parametrize(("verb", "state"), [(v, s) for v in FITS for s in STATES if s not in FITS[v]])
async def test_an_act_that_does_not_fit_the_state_is_refused_with_its_word(
    store: Subject, verb: str, state: str
) -> None:
    id = await put_into(store, state)
    before = (store.place_of(id), await store.history(id))
    with pytest.raises(ActRefused, match=f"is {state}; {verb} does not apply"):
        await act(store, verb, id)
    assert (store.place_of(id), await store.history(id)) == before


@pytest.mark.parametrize("verb", FITS)
async def test_an_act_on_a_message_that_never_was_is_not_found(store: Subject, verb: str) -> None:
    with pytest.raises(NotFound, match=str(NOBODY)):
        await act(store, verb, NOBODY)


@pytest.mark.req("G-19")
@pytest.mark.parametrize("values", [{"actor": ""}, {"actor": " "}, {"reason": ""}, {"reason": "\t"}])
@pytest.mark.parametrize("verb", FITS)
async def test_an_act_needs_an_actor_and_a_reason(store: Subject, verb: str, values: dict[str, str]) -> None:
    id = await put_into(store, next(iter(sorted(FITS[verb]))))
    with pytest.raises(InvalidValue):
        await act(store, verb, id, **values)
    assert store.state_of(id) == "parked"


@pytest.mark.req("G-05")
@pytest.mark.parametrize(("verb", "state"), [(v, s) for v in FITS for s in sorted(FITS[v])])
async def test_an_act_is_a_row_of_the_archive(store: Subject, verb: str, state: str) -> None:
    id = await put_into(store, state)
    await act(store, verb, id)
    attempt, row = await store.history(id)
    assert (attempt.verb, row.verb, row.actor, row.reason) == ("settle", verb, "ada", "asked the bank")
    assert (row.attempt, row.spent, row.stage, row.completed_at) == (1, 1, "first", at(9))
    assert (row.worker, row.claimed_at, row.settlement, row.answer) == (None, None, None, None)
    closed = {"confirm": "delivered", "discard": "discarded"}.get(verb)
    assert (row.closed, row.due_at) == (closed, None if closed else at(9))
    assert store.state_of(id) == (closed or "pending")


@pytest.mark.req("G-12")
async def test_a_requeued_message_has_a_fresh_budget_and_goes_on_counting_claims(store: Subject) -> None:
    id = await crashed(store, key="k", expires_at=at(99))
    await claim_alone(store, now=at(1))
    await store.reap(limit=1, worker=None, now=at(99))
    await settle(store, parked(await claim_alone(store, now=at(99))), worker=BOB, now=at(99.1))
    await store.requeue(id, **ACT, now=at(99.2))
    place = pending(store, id)
    assert (place.attempt, place.spent, place.lookups, place.crashes) == (3, 0, 0, 0)
    assert (place.suspect, place.cancel_requested, place.first_failed_at) == (False, False, None)
    assert (place.due_at, place.expires_at, place.stage, place.policy_version) == (
        at(99.2),
        at(99),
        "first",
        "p3",
    )


async def test_a_requeue_can_name_another_stage(store: Subject) -> None:
    id = await put_into(store, "dead")
    await store.requeue(id, **ACT, stage="notify", now=at(9))
    attempt = await claim_one(store, now=at(9))
    assert (attempt.stage, attempt.number) == ("notify", 2)
    assert (await store.history(id))[-1].stage == "notify"
    await settle(store, delivered(attempt), now=at(10))
    assert [row.closed for row in await store.history(id)] == [None, None, "delivered"]


@pytest.mark.req("G-13")
async def test_a_requeue_keeps_the_doubt(store: Subject) -> None:
    id = enqueue(store)
    await settle(store, retried(await claim_one(store), in_doubt=True), now=at(1))
    attempt = await claim_one(store, now=at(2))
    doubtful = parked(attempt, ParkReason.HELD)
    dead = type(doubtful.settlement)(**{**vars(doubtful.settlement), "park_reason": ParkReason.DEAD})
    await settle(store, type(doubtful)(attempt=attempt, settlement=dead), now=at(3))
    await store.requeue(id, **ACT, now=at(4))
    assert (await claim_one(store, now=at(4))).in_doubt_since == at(1)


@pytest.mark.req("G-13")
async def test_a_denied_message_is_sent_again_without_doubt(store: Subject) -> None:
    id = await put_into(store, "held")
    await store.deny(id, **ACT, now=at(9))
    attempt = await claim_one(store, now=at(9))
    assert (attempt.id, attempt.in_doubt, attempt.kept_answer, attempt.spent) == (id, False, None, 0)


async def test_a_confirmed_message_is_delivered_with_the_evidence(store: Subject) -> None:
    id = await put_into(store, "held")
    await store.confirm(id, **ACT, reference="bank-7", now=at(9))
    row = (await store.history(id))[-1]
    assert (store.state_of(id), row.closed, row.reference) == ("delivered", "delivered", "bank-7")


async def test_a_confirmed_message_of_a_destination_that_records_is_recorded_first(store: Subject) -> None:
    relay = RelayInfo(worker=ALICE, name="r", host="h", pid=1, version="1", destinations=[MAIL], records=[MAIL])
    await store.register(relay, now=at(0))
    id = await put_into(store, "held")
    await store.confirm(id, **ACT, reference="bank-7", now=at(9))
    attempt = await claim_one(store, now=at(9))
    assert attempt.kept_answer is not None
    assert answers.from_json(attempt.kept_answer) == Delivered("bank-7")
    assert (attempt.in_doubt, attempt.number) == (False, 2)
    row = (await store.history(id))[-1]
    assert (row.verb, row.closed) == ("confirm", None)


async def test_a_repaired_message_carries_the_answer_that_was_kept(store: Subject) -> None:
    id = await put_into(store, "unrecorded")
    await store.repair(id, **ACT, now=at(9))
    attempt = await claim_one(store, now=at(9))
    assert attempt.kept_answer is not None
    assert answers.from_json(attempt.kept_answer) == Delivered("r-1")
    assert (attempt.id, attempt.spent) == (id, 0)


async def test_an_act_happens_once(store: Subject) -> None:
    id = await put_into(store, "dead")
    await store.discard(id, **ACT, now=at(9))
    with pytest.raises(ActRefused, match="is discarded"):
        await store.discard(id, **ACT, now=at(10))
    assert len(await store.history(id)) == 2
