"""A late answer "delivered", two people for money, and deny that asks first: alike in both stores."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from redrive.errors import ActRefused
from redrive.message import Attempt, MessageId, ParkReason
from redrive.ports import RelayInfo
from tests.conformance.steps import (
    ACT,
    ALICE,
    BOB,
    MAIL,
    T0,
    advanced,
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
from tests.model_store.transitions import Parked, Pending

pytestmark = [pytest.mark.req("P-11"), pytest.mark.req("G-14")]


async def register(store: Subject, *, money: bool = False, in_doubt: str = "resend", record: bool = False) -> None:
    relay = RelayInfo(
        worker=ALICE,
        name="relay",
        host="here",
        pid=1,
        version="1",
        destinations=[MAIL],
        records=[MAIL] if record else [],
        money=[MAIL] if money else [],
        in_doubt={MAIL: in_doubt},
    )
    await store.register(relay, now=T0)


async def lose(store: Subject, **values: Any) -> Attempt:
    """A message whose first claim was lost."""
    enqueue(store, **values)
    lost = await claim_one(store)
    assert (await store.reap(limit=10, worker=ALICE, now=at(1))).requeued == 1
    return lost


async def late(store: Subject, lost: Attempt) -> None:
    settled = await store.settle(ALICE, [delivered(lost, reference="r-1")], now=at(3))
    assert settled.refused == [lost.fence]


def place(store: Subject, id: MessageId) -> Parked:
    found = store.place_of(id)
    assert isinstance(found, Parked)
    return found


GUARDED = [{"money": True}, {"in_doubt": "lookup"}, {"in_doubt": "hold"}]


@pytest.mark.parametrize("declared", GUARDED, ids=str)
@pytest.mark.parametrize("order_by", [None, "k"])
async def test_a_late_success_holds_a_pending_message(
    store: Subject, declared: dict[str, Any], order_by: str | None
) -> None:
    await register(store, **declared)
    lost = await lose(store, order_by=order_by)
    await late(store, lost)
    found = place(store, lost.id)
    assert (found.reason, found.error_class, found.halts, found.in_doubt_since) == ("held", "LATE_SUCCESS", True, at(1))
    assert "r-1" in (found.last_text or "")
    last = (await store.history(lost.id))[-1]
    assert (last.verb, last.code, last.completed_at) == ("hold", "LATE_SUCCESS", at(3))
    assert await claim(store, now=at(4)) == []


@pytest.mark.parametrize("declared", GUARDED, ids=str)
async def test_a_late_success_holds_a_dead_message(store: Subject, declared: dict[str, Any]) -> None:
    await register(store, **declared)
    lost = await lose(store)
    await settle(store, parked(await claim_alone(store, now=at(2)), halts=False), now=at(2), worker=BOB)
    await late(store, lost)
    found = place(store, lost.id)
    assert (found.reason, found.error_class, found.halts) == ("held", "LATE_SUCCESS", True)


@pytest.mark.parametrize(
    "outcome",
    [
        retried,
        lambda attempt: retried(attempt, in_doubt=True),
        lambda attempt: advanced(attempt, "notify"),
        parked,
        lambda attempt: parked(attempt, ParkReason.HELD),
    ],
    ids=["retry", "retry in doubt", "advance", "dead", "held"],
)
@pytest.mark.parametrize("cancel", [False, True])
async def test_a_late_success_holds_a_message_that_is_in_flight_when_that_ends(
    store: Subject, outcome: Callable[[Attempt], Any], cancel: bool
) -> None:
    await register(store, in_doubt="lookup")
    lost = await lose(store)
    current = await claim_alone(store, now=at(2))
    assert not current.has_evidence
    await late(store, lost)
    if cancel:
        await store.cancel(lost.id, now=at(4))
    await settle(store, outcome(current), now=at(5), worker=BOB)
    found = place(store, lost.id)
    assert (found.reason, found.error_class, found.halts) == ("held", "LATE_SUCCESS", True)
    assert found.in_doubt_since is not None
    last = (await store.history(lost.id))[-1]
    assert (last.verb, last.settlement, last.code, last.closed) == ("settle", "park", "LATE_SUCCESS", None)


async def test_a_message_in_flight_that_is_delivered_ends_as_delivered(store: Subject) -> None:
    await register(store, in_doubt="lookup")
    lost = await lose(store)
    current = await claim_alone(store, now=at(2))
    await late(store, lost)
    await settle(store, delivered(current), now=at(4), worker=BOB)
    assert store.state_of(lost.id) == "delivered"


async def test_a_claim_of_a_message_with_evidence_says_so(store: Subject) -> None:
    await register(store, in_doubt="lookup")
    lost = await lose(store)
    current = await claim_alone(store, now=at(2))
    await late(store, lost)
    await store.cancel(lost.id, now=at(3))
    assert await store.hand_back(BOB, [current.fence], now=at(4)) == [current.fence]
    assert store.state_of(lost.id) == "pending"  # a cancel does not end it as if nothing had been sent
    assert (await claim_alone(store, now=at(5))).has_evidence


async def test_a_worker_that_asks_about_its_claim_is_told_of_evidence(store: Subject) -> None:
    await register(store, in_doubt="lookup")
    lost = await lose(store)
    current = await claim_alone(store, now=at(2))
    assert not current.has_evidence
    await late(store, lost)
    (found,) = await store.check_claims(BOB, [current.fence], now=at(4))
    assert found.has_evidence


async def test_elsewhere_a_late_success_changes_nothing(store: Subject) -> None:
    await register(store)
    lost = await lose(store)
    await late(store, lost)
    assert isinstance(store.place_of(lost.id), Pending)
    assert len(store.late_answers) == 1
    current = await claim_alone(store, now=at(4))
    assert not current.has_evidence
    await settle(store, parked(current), now=at(5), worker=BOB)
    await store.requeue(lost.id, **ACT, now=at(6))
    assert store.state_of(lost.id) == "pending"


@pytest.mark.parametrize("verb", ["requeue", "deny", "discard", "skip"])
async def test_with_evidence_every_act_but_confirm_is_refused(store: Subject, verb: str) -> None:
    await register(store, in_doubt="hold")
    lost = await lose(store, order_by="k")
    await late(store, lost)
    before = (store.place_of(lost.id), await store.history(lost.id))
    with pytest.raises(ActRefused, match="delivered"):
        await act(store, verb, lost.id, ACT)
    assert (store.place_of(lost.id), await store.history(lost.id)) == before
    await store.confirm(lost.id, **ACT, reference="r-1", now=at(9))
    assert store.state_of(lost.id) == "delivered"


async def test_an_operator_cannot_cancel_what_has_evidence_and_the_applications_cancel_keeps_it_open(
    store: Subject,
) -> None:
    await register(store, in_doubt="hold")
    lost = await lose(store)
    current = await claim_alone(store, now=at(2))
    await late(store, lost)
    with pytest.raises(ActRefused, match="delivered"):
        await store.cancel(lost.id, **ACT, now=at(4))
    await store.hand_back(BOB, [current.fence], now=at(5))
    with pytest.raises(ActRefused, match="delivered"):
        await store.cancel(lost.id, **ACT, now=at(6))
    assert await store.cancel(lost.id, now=at(7)) == "in_doubt"
    assert store.state_of(lost.id) == "pending"


# two people


async def act(store: Subject, verb: str, id: MessageId, who: dict[str, Any], **values: Any) -> None:
    verbs: dict[str, Callable[..., Awaitable[Any]]] = {
        "requeue": store.requeue,
        "confirm": store.confirm,
        "deny": store.deny,
        "discard": store.discard,
        "cancel": store.cancel,
    }
    if verb == "skip":
        await store.skip("default", "k", **{**who, "now": at(9), **values})
    else:
        await verbs[verb](id, **{**who, "now": at(9), **values})


GRACE: dict[str, Any] = {"actor": "grace", "reason": "so did I"}
ENDS = {
    ("requeue", "dead"): "pending",
    ("deny", "held"): "pending",
    ("discard", "dead"): "discarded",
    ("discard", "unrecorded"): "discarded",
    ("confirm", "held"): "delivered",
    ("confirm", "dead"): "delivered",
    ("skip", "held"): "skipped",
    ("skip", "pending"): "skipped",
    ("cancel", "pending"): "cancelled",
    ("cancel", "leased"): "leased",
}


async def money_in(store: Subject, state: str, *, in_doubt: str = "resend") -> MessageId:
    await register(store, money=True, in_doubt=in_doubt)
    id = enqueue(store, order_by="k")
    if state == "pending":
        return id
    attempt = await claim_one(store)
    if state != "leased":
        await settle(store, parked(attempt, ParkReason(state)), now=at(1))
    return id


@pytest.mark.req("P-12")
@pytest.mark.parametrize(("verb", "state"), ENDS)
async def test_every_act_on_money_takes_two_people(store: Subject, verb: str, state: str) -> None:
    id = await money_in(store, state)
    before = (store.place_of(id), await store.history(id))
    for _ in range(2):
        with pytest.raises(ActRefused, match="second person"):
            await act(store, verb, id, ACT)
    assert (store.place_of(id), await store.history(id)) == before
    await act(store, verb, id, GRACE)
    assert store.state_of(id) == ENDS[verb, state]


@pytest.mark.req("P-12")
@pytest.mark.parametrize(
    ("verb", "state", "first", "second"),
    [("confirm", "held", {"reference": "r-1"}, {"reference": "r-2"}), ("requeue", "dead", {}, {"out_of_order": True})],
)
async def test_another_option_is_another_proposal(
    store: Subject, verb: str, state: str, first: dict[str, Any], second: dict[str, Any]
) -> None:
    id = await money_in(store, state)
    for who, options in ((ACT, first), (GRACE, second), (ACT, first)):
        with pytest.raises(ActRefused, match="second person"):
            await act(store, verb, id, who, **options)
    await act(store, verb, id, GRACE, **first)
    assert store.state_of(id) == ENDS[verb, state]


@pytest.mark.req("P-12")
async def test_a_proposal_does_not_outlive_its_incident(store: Subject) -> None:
    id = await money_in(store, "dead")
    with pytest.raises(ActRefused, match="second person"):
        await store.discard(id, **ACT, now=at(9))
    with pytest.raises(ActRefused, match="second person"):
        await store.requeue(id, **ACT, now=at(9))
    await store.requeue(id, **GRACE, now=at(10))
    await settle(store, parked(await claim_one(store, now=at(11))), now=at(12))
    for verb in ("discard", "requeue"):
        with pytest.raises(ActRefused, match="second person"):
            await act(store, verb, id, GRACE, now=at(13))


@pytest.mark.req("P-12")
async def test_money_has_one_stage(store: Subject) -> None:
    id = await money_in(store, "dead")
    with pytest.raises(ActRefused, match="one stage"):
        await store.requeue(id, **ACT, stage="notify", now=at(9))
    with pytest.raises(ActRefused, match="second person"):
        await store.requeue(id, **ACT, stage="first", now=at(9))
    await store.requeue(id, **GRACE, now=at(10))
    assert (await claim_one(store, now=at(11))).stage == "first"


@pytest.mark.req("G-13")
@pytest.mark.parametrize(("in_doubt", "since"), [("lookup", at(1)), ("hold", None), ("resend", None)])
async def test_a_denied_message_keeps_its_doubt_where_the_destination_can_be_asked(
    store: Subject, in_doubt: str, since: Any
) -> None:
    await register(store, in_doubt=in_doubt)
    id = enqueue(store)
    await settle(store, parked(await claim_one(store), ParkReason.HELD), now=at(1))
    await store.deny(id, **ACT, now=at(9))
    attempt = await claim_one(store, now=at(9))
    assert (attempt.in_doubt_since, attempt.lookups) == (since, 0)
