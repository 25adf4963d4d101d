"""The next message of a key, handed to the worker that delivered the one before it: only what it may have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from redrive.message import Attempt, ParkReason, Priority
from redrive.ports import HandOver, Outcome, Settled
from tests.conformance.steps import (
    ACT,
    ALICE,
    BOB,
    MAIL,
    advanced,
    at,
    claim,
    claim_one,
    deliver,
    delivered,
    enqueue,
    enqueue_lane,
    order,
    parked,
    retried,
    settle,
)
from tests.conformance.subjects import Subject
from tests.model_store.transitions import Lease

pytestmark = pytest.mark.req("G-07")


async def settle_asking(
    store: Subject, outcomes: Sequence[Outcome], *, asking: Sequence[Attempt] | None = None, now: float = 0
) -> Settled:
    """Settle these, and ask for what follows: all of them, or only those given."""
    ids = {a.id for a in asking} if asking is not None else {o.attempt.id for o in outcomes}
    return await store.settle(ALICE, outcomes, hand_over=HandOver(ids, 45.0), now=at(now))


async def follows(store: Subject, *, now: float = 0) -> Sequence[Attempt]:
    """What is handed over with the delivery of the one message that may be claimed."""
    settled = await settle_asking(store, [delivered(await claim_one(store))], now=now)
    assert settled.settled == 1
    return settled.handed_over


async def test_the_next_message_is_handed_over_with_all_that_a_claim_has(store: Subject) -> None:
    _, second, _ = enqueue_lane(store, 3, priority="low")
    first = await claim_one(store, priority=Priority.LOW)
    settled = await settle_asking(store, [delivered(first)], now=1)
    (attempt,) = settled.handed_over
    assert (attempt.id, attempt.number, attempt.order_by, attempt.sequence) == (second, 1, "k", 2)
    assert (attempt.alone, attempt.claimed_at, attempt.lease_seconds, attempt.level) == (False, at(1), 45.0, 2)
    lease = store.place_of(second)
    assert isinstance(lease, Lease)
    assert (lease.worker, lease.until, lease.attempt) == (ALICE, at(46), 1)
    assert await claim(store, now=at(1), worker=BOB, priority=Priority.LOW) == []


async def test_a_whole_key_can_be_handed_on_message_by_message(store: Subject) -> None:
    enqueue_lane(store, 4)
    taken = [await claim_one(store)]
    while handed_over := (await settle_asking(store, [delivered(taken[-1])])).handed_over:
        taken += handed_over
    assert [attempt.sequence for attempt in taken] == [1, 2, 3, 4]
    assert store.conservation().closed == 4


async def test_nothing_is_handed_over_that_was_not_asked_for(store: Subject) -> None:
    for key in ("k", "other"):
        enqueue_lane(store, 2, key=key)
    mine, others = sorted(await claim(store), key=lambda a: str(a.order_by))
    assert (await store.settle(ALICE, [], now=at(0))).handed_over == ()
    settled = await settle_asking(store, [delivered(mine), delivered(others)], asking=[others])
    assert order(settled.handed_over) == [("other", 2)]
    assert order(await claim(store)) == [("k", 2)]


async def test_without_asking_nothing_is_handed_over(store: Subject) -> None:
    enqueue_lane(store, 2)
    settled = await store.settle(ALICE, [delivered(await claim_one(store))], now=at(0))
    assert (settled.settled, settled.handed_over) == (1, ())


async def test_unordered_messages_and_the_last_of_a_key_hand_over_nothing(store: Subject) -> None:
    enqueue_lane(store, 1)
    enqueue(store)
    settled = await settle_asking(store, [delivered(attempt) for attempt in await claim(store)])
    assert (settled.settled, settled.handed_over) == (2, ())


@pytest.mark.parametrize("how", ["retry", "advance", "dead", "dead, goes on", "with a result"])
async def test_only_a_plain_delivery_hands_over(store: Subject, how: str) -> None:
    enqueue_lane(store, 2)
    attempt = await claim_one(store)
    outcome = {
        "retry": retried(attempt),
        "advance": advanced(attempt, "second"),
        "dead": parked(attempt),
        "dead, goes on": parked(attempt, halts=False),
        "with a result": delivered(attempt, result=1),
    }[how]
    settled = await settle_asking(store, [outcome])
    assert (settled.settled, settled.handed_over) == (1, ())


async def test_an_outcome_that_is_refused_hands_over_nothing(store: Subject) -> None:
    enqueue_lane(store, 2)
    lost = await claim_one(store)
    await store.reap(limit=10, worker=ALICE, now=at(1))
    settled = await settle_asking(store, [delivered(lost)], now=2)
    assert (settled.refused, settled.handed_over) == ([lost.fence], ())


async def test_an_outcome_that_is_repeated_hands_over_nothing_more(store: Subject) -> None:
    enqueue_lane(store, 3)
    first = await claim_one(store)
    (second,) = (await settle_asking(store, [delivered(first)])).handed_over
    again = await settle_asking(store, [delivered(first)])
    assert (again.repeated, again.handed_over) == ([first.fence], ())
    assert (await settle_asking(store, [delivered(second)])).handed_over[0].sequence == 3


async def test_a_message_of_another_destination_is_not_handed_over(store: Subject) -> None:
    """Not even where a neighbour of the batch was delivered there: there was room for that one's next only."""
    enqueue(store, order_by="k")
    enqueue(store, order_by="k", destination="bank")
    enqueue_lane(store, 2, key="other", destination="bank")
    mail, bank = await claim_one(store), await claim_one(store, destination="bank")
    settled = await settle_asking(store, [delivered(mail), delivered(bank)])
    assert order(settled.handed_over) == [("other", 2)]
    assert order(await claim(store, destination="bank")) == [("k", 2)]


async def test_a_message_that_is_not_due_is_not_handed_over(store: Subject) -> None:
    enqueue_lane(store, 1)
    enqueue(store, order_by="k", due_at=at(60))
    assert await follows(store, now=59) == ()
    assert order(await claim(store, now=at(60))) == [("k", 2)]


async def test_a_message_that_has_expired_is_not_handed_over(store: Subject) -> None:
    enqueue_lane(store, 1)
    expired = enqueue(store, order_by="k", expires_at=at(5))
    enqueue_lane(store, 1)
    assert await follows(store, now=5) == ()
    assert (await claim(store, now=at(5)), store.state_of(expired)) == ([], "expired")
    assert order(await claim(store, now=at(5))) == [("k", 3)]


async def test_a_message_in_doubt_that_has_expired_is_handed_over_to_be_asked_for(store: Subject) -> None:
    dead, second = enqueue(store, order_by="k"), enqueue(store, order_by="k", expires_at=at(5))
    await settle(store, parked(await claim_one(store), halts=False))
    await settle(store, retried(await claim_one(store), in_doubt=True))
    await store.requeue(dead, **ACT, out_of_order=True, now=at(1))
    head = await claim_one(store, now=at(1))
    (attempt,) = (await settle_asking(store, [delivered(head)], now=6)).handed_over
    assert (attempt.id, attempt.expired, attempt.in_doubt) == (second, True, True)


async def test_a_suspect_is_not_handed_over(store: Subject) -> None:
    dead, suspect = enqueue_lane(store, 2)
    await settle(store, parked(await claim_one(store), halts=False))
    await claim_one(store)
    await store.reap(limit=10, worker=ALICE, now=at(1))
    await store.requeue(dead, **ACT, out_of_order=True, now=at(2))
    head = await claim_one(store, now=at(2))
    assert (await settle_asking(store, [delivered(head)], now=3)).handed_over == ()
    assert store.state_of(suspect) == "pending"
    assert await store.suspect_destinations([MAIL], now=at(3))


async def test_nothing_is_handed_over_for_a_paused_destination(store: Subject) -> None:
    enqueue_lane(store, 2)
    head = await claim_one(store)
    await store.pause(MAIL, **ACT, now=at(1))
    assert (await settle_asking(store, [delivered(head)], now=2)).handed_over == ()
    await store.resume(MAIL, **ACT, now=at(3))
    assert order(await claim(store, now=at(3))) == [("k", 2)]


@pytest.mark.parametrize("reason", list(ParkReason))
async def test_nothing_behind_a_parked_message_is_handed_over(store: Subject, reason: ParkReason) -> None:
    first, _, _ = enqueue_lane(store, 3)
    await settle(store, parked(await claim_one(store), halts=False))
    await settle(store, parked(await claim_one(store), reason))
    await store.requeue(first, **ACT, out_of_order=True, now=at(1))
    head = await claim_one(store, now=at(1))
    assert (await settle_asking(store, [delivered(head)], now=1)).handed_over == ()
    assert await claim(store, now=at(1)) == []


async def test_a_message_that_was_requeued_meanwhile_is_handed_over_before_those_that_wait(store: Subject) -> None:
    first, _, _ = enqueue_lane(store, 3)
    await settle(store, parked(await claim_one(store), halts=False))
    second = await claim_one(store)
    await store.requeue(first, **ACT, out_of_order=True, now=at(1))
    assert await claim(store, now=at(1)) == []
    (attempt,) = (await settle_asking(store, [delivered(second)], now=1)).handed_over
    assert (attempt.id, attempt.number) == (first, 2)


async def test_a_settle_with_a_record_hands_over_nothing(store: Subject) -> None:
    enqueue_lane(store, 2)

    async def record(*_: Any) -> None:
        pass

    attempt = await claim_one(store)
    settled = await store.settle_one(ALICE, delivered(attempt), record, on_step=lambda _: None, now=at(1))
    assert (settled.settled, settled.handed_over) == (1, ())
    assert order(await claim(store, now=at(1))) == [("k", 2)]


async def test_what_was_handed_over_is_fenced_like_any_claim(store: Subject) -> None:
    enqueue_lane(store, 3)
    (second,) = await follows(store)
    await store.reap(limit=10, worker=ALICE, now=at(1))
    settled = await settle_asking(store, [delivered(second)], now=2)
    assert (settled.refused, settled.handed_over) == ([second.fence], ())
    assert await claim(store, now=at(2)) == []


async def test_keys_of_one_batch_are_handed_over_each_with_its_own_next(store: Subject) -> None:
    for key in "abc":
        enqueue_lane(store, 2, key=key)
    settled = await settle_asking(store, [delivered(attempt) for attempt in await claim(store)])
    assert order(settled.handed_over) == [("a", 2), ("b", 2), ("c", 2)]
    for attempt in settled.handed_over:
        await deliver(store, attempt)
