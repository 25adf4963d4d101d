"""Whether the head of an ordering key may go, row by row of LANES.md; what comes after it waits, nobody else does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from redrive.message import CancelAnswer, Closed, ParkReason, Priority
from redrive.policy import Settlement, SettlementKind
from redrive.ports import Outcome
from tests.conformance.steps import (
    ACT,
    ALICE,
    BOB,
    LEASE_SECONDS,
    MAIL,
    advanced,
    at,
    claim,
    claim_alone,
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

pytestmark = pytest.mark.req("G-07")

K1, K2, K3 = (("k", number) for number in (1, 2, 3))


# due, leased


async def test_only_the_head_of_a_key_is_claimed_however_much_room_there_is(store: Subject) -> None:
    enqueue_lane(store, 3)
    enqueue_lane(store, 2, key="other")
    enqueue(store)
    assert order([a for a in await claim(store) if a.order_by]) == [K1, ("other", 1)]
    assert await claim(store, worker=BOB) == []


async def test_the_next_goes_when_the_head_is_closed_and_not_before(store: Subject) -> None:
    enqueue_lane(store, 3)
    for number in (1, 2, 3):
        head = await claim_one(store)
        assert (head.order_by, head.sequence) == ("k", number)
        assert await claim(store, worker=BOB) == []
        await deliver(store, head)
    assert await claim(store) == []


async def test_messages_that_come_while_the_head_is_in_hand_wait_for_it(store: Subject) -> None:
    enqueue_lane(store, 1)
    head = await claim_one(store)
    enqueue_lane(store, 1)
    assert await claim(store) == []
    await deliver(store, head)
    assert order(await claim(store)) == [K2]


async def test_a_key_that_ran_empty_goes_on_with_the_next_message(store: Subject) -> None:
    enqueue_lane(store, 1)
    await deliver(store, await claim_one(store))
    assert await claim(store) == []
    enqueue_lane(store, 1, now=at(5))
    assert order(await claim(store, now=at(5))) == [K2]


@pytest.mark.parametrize("closed", [Closed.EXPIRED, Closed.CANCELLED])
async def test_an_attempt_that_ends_the_head_lets_the_next_go(store: Subject, closed: Closed) -> None:
    enqueue_lane(store, 2)
    settlement = Settlement(kind=SettlementKind.CLOSE, closed=closed)
    await settle(store, Outcome(attempt=await claim_one(store), settlement=settlement))
    assert order(await claim(store)) == [K2]


async def test_a_head_that_was_delivered_with_a_result_lets_the_next_go(store: Subject) -> None:
    enqueue_lane(store, 2)
    await settle(store, delivered(await claim_one(store), result={"n": 1}))
    assert order(await claim(store)) == [K2]


async def test_a_head_that_is_handed_back_is_still_the_head(store: Subject) -> None:
    enqueue_lane(store, 2)
    head = await claim_one(store)
    await store.hand_back(ALICE, [head.fence], now=at(1))
    again = await claim_one(store, now=at(1))
    assert (again.id, again.number) == (head.id, 2)


# not due


async def test_a_delayed_head_delays_its_key_and_no_other(store: Subject) -> None:
    enqueue(store, order_by="k", due_at=at(60))
    enqueue_lane(store, 1)
    enqueue_lane(store, 1, key="other")
    assert order(await claim(store, now=at(59))) == [("other", 1)]
    assert order(await claim(store, now=at(60))) == [K1]


async def test_a_head_that_waits_for_its_retry_keeps_the_next_waiting(store: Subject) -> None:
    enqueue_lane(store, 2)
    await settle(store, retried(await claim_one(store), delay_seconds=10), now=at(1))
    assert await claim(store, now=at(10)) == []
    again = await claim_one(store, now=at(11))
    assert (again.sequence, again.number) == (1, 2)
    await deliver(store, again, now=at(11))
    assert order(await claim(store, now=at(11))) == [K2]


async def test_a_delayed_message_behind_the_head_delays_only_what_comes_after_it(store: Subject) -> None:
    enqueue_lane(store, 1)
    enqueue(store, order_by="k", due_at=at(60))
    enqueue_lane(store, 1)
    await deliver(store, await claim_one(store))
    assert await claim(store, now=at(59)) == []
    assert order(await claim(store, now=at(60))) == [K2]


# paused


async def test_a_paused_destination_keeps_the_keys_whose_head_goes_there(store: Subject) -> None:
    enqueue(store, destination=MAIL, order_by="k")
    enqueue(store, destination="bank", order_by="k")
    enqueue(store, destination="bank", order_by="other")
    await store.pause(MAIL, **ACT, now=at(1))
    assert await claim(store, now=at(2)) == []
    assert order(await claim(store, destination="bank", now=at(2))) == [("other", 1)]
    await store.resume(MAIL, **ACT, now=at(3))
    assert order(await claim(store, now=at(3))) == [K1]


# expired


async def test_a_head_that_has_expired_is_closed_by_the_claim_and_the_key_goes_on(store: Subject) -> None:
    first = enqueue(store, order_by="k", expires_at=at(5))
    enqueue_lane(store, 1)
    assert await claim(store, now=at(5)) == []
    assert store.state_of(first) == "expired"
    assert order(await claim(store, now=at(5))) == [K2]


async def test_a_head_that_has_expired_is_closed_by_the_duty_and_the_key_goes_on(store: Subject) -> None:
    enqueue(store, order_by="k", due_at=at(60), expires_at=at(90))
    enqueue_lane(store, 1)
    await store.pause(MAIL, **ACT, now=at(1))
    assert await store.expire(limit=10, now=at(90)) == 1
    await store.resume(MAIL, **ACT, now=at(90))
    assert order(await claim(store, now=at(90))) == [K2]


async def test_a_head_that_expires_before_its_retry_is_due_lets_the_next_go_at_once(store: Subject) -> None:
    enqueue(store, order_by="k", expires_at=at(90))
    enqueue_lane(store, 1)
    await settle(store, retried(await claim_one(store), delay_seconds=600), now=at(1))
    assert await store.expire(limit=10, now=at(90)) == 1
    assert order(await claim(store, now=at(90))) == [K2]


async def test_a_message_behind_the_head_may_expire_before_its_turn(store: Subject) -> None:
    enqueue_lane(store, 1)
    waiting = enqueue(store, order_by="k", expires_at=at(5))
    enqueue_lane(store, 1)
    head = await claim_one(store)
    assert await store.expire(limit=10, now=at(5)) == 1
    assert store.state_of(waiting) == "expired"
    assert await claim(store, now=at(5)) == []
    await deliver(store, head, now=at(6))
    assert order(await claim(store, now=at(6))) == [K3]


async def test_a_head_in_doubt_does_not_just_expire(store: Subject) -> None:
    enqueue(store, order_by="k", expires_at=at(5))
    enqueue_lane(store, 1)
    await settle(store, retried(await claim_one(store), in_doubt=True), now=at(1))
    assert await store.expire(limit=10, now=at(6)) == 0
    again = await claim_one(store, now=at(6))
    assert (again.sequence, again.expired) == (1, True)


# suspect


async def test_a_suspect_head_waits_for_its_own_claim_and_blocks_its_key(store: Subject) -> None:
    enqueue_lane(store, 2)
    await claim_one(store)
    await store.reap(limit=10, worker=ALICE, now=at(1))
    assert await claim(store, now=at(1)) == []
    assert await store.suspect_destinations([MAIL], now=at(1))
    suspect = await claim_alone(store, now=at(1))
    assert (suspect.sequence, suspect.number, suspect.alone) == (1, 2, True)
    assert not await store.suspect_destinations([MAIL], now=at(2))
    await deliver(store, suspect, now=at(2), worker=BOB)
    assert order(await claim(store, now=at(2))) == [K2]


async def test_a_suspect_behind_the_head_of_its_key_is_not_claimed(store: Subject) -> None:
    dead, _ = enqueue_lane(store, 2)
    await settle(store, parked(await claim_one(store), halts=False))
    await claim_one(store)
    await store.reap(limit=10, worker=ALICE, now=at(1))
    await store.requeue(dead, **ACT, out_of_order=True, now=at(2))
    assert not await store.suspect_destinations([MAIL], now=at(2))
    assert (await store.claim_suspect(BOB, [MAIL], lease_seconds=LEASE_SECONDS, now=at(2))).attempts == []
    await deliver(store, await claim_one(store, now=at(2)), now=at(2))
    assert (await claim_alone(store, now=at(2))).sequence == 2


async def test_a_suspect_before_another_one_elsewhere_is_not_claimed_for_it(store: Subject) -> None:
    """Two suspects of one key: only the first may go, and only for a worker of its destination."""
    first = enqueue(store, order_by="k")
    enqueue(store, order_by="k", destination="bank")
    await settle(store, parked(await claim_one(store), halts=False))
    await claim_one(store, destination="bank")
    await store.reap(limit=10, worker=ALICE, now=at(1))
    await store.requeue(first, **ACT, out_of_order=True, now=at(2))
    await claim_one(store, now=at(2))
    await store.reap(limit=10, worker=ALICE, now=at(3))
    assert not await store.suspect_destinations(["bank"], now=at(3))
    assert (await store.claim_suspect(BOB, ["bank"], lease_seconds=LEASE_SECONDS, now=at(3))).attempts == []
    assert (await claim_alone(store, now=at(3))).id == first


async def test_a_head_that_was_requeued_before_a_lost_claim_goes_first(store: Subject) -> None:
    first, _ = enqueue_lane(store, 2)
    await settle(store, parked(await claim_one(store), halts=False))
    await claim_one(store)
    await store.requeue(first, **ACT, out_of_order=True, now=at(1))
    await store.reap(limit=10, worker=ALICE, now=at(2))
    assert order(await claim(store, now=at(2))) == [K1]


async def test_suspects_of_a_paused_destination_hide_no_others(store: Subject) -> None:
    for number in range(101):
        enqueue(store, order_by=f"k-{number}", destination="bank")
    enqueue_lane(store, 1, now=at(1))
    await claim(store, destination="bank", room=200, now=at(1))
    await store.reap(limit=200, worker=ALICE, now=at(2))
    await claim_one(store, now=at(2))
    await store.reap(limit=200, worker=ALICE, now=at(3))
    await store.pause("bank", **ACT, now=at(4))
    claimed = await store.claim_suspect(BOB, ["bank", MAIL], lease_seconds=LEASE_SECONDS, now=at(4))
    assert order(claimed.attempts) == [K1]


async def test_a_suspect_head_of_a_paused_destination_waits(store: Subject) -> None:
    enqueue_lane(store, 1)
    await claim_one(store)
    await store.reap(limit=10, worker=ALICE, now=at(1))
    await store.pause(MAIL, **ACT, now=at(2))
    assert not await store.suspect_destinations([MAIL], now=at(2))
    assert (await store.claim_suspect(BOB, [MAIL], lease_seconds=LEASE_SECONDS, now=at(2))).attempts == []


async def test_a_suspect_head_that_has_expired_is_closed_and_the_key_goes_on(store: Subject) -> None:
    first = enqueue(store, order_by="k", expires_at=at(50))
    enqueue_lane(store, 1)
    await claim_one(store)
    await store.reap(limit=10, worker=ALICE, now=at(1))
    await claim_alone(store, now=at(2))
    await store.reap(limit=10, worker=BOB, now=at(3))
    await settle(store, retried(await claim_alone(store, now=at(4))), now=at(5), worker=BOB)
    await store.claim_suspect(BOB, [MAIL], lease_seconds=LEASE_SECONDS, now=at(50))
    assert store.state_of(first) == "expired"
    assert order(await claim(store, now=at(50))) == [K2]


# parked


@pytest.mark.parametrize("reason", list(ParkReason))
async def test_a_parked_head_halts_its_key_and_no_other(store: Subject, reason: ParkReason) -> None:
    enqueue_lane(store, 2)
    enqueue_lane(store, 1, key="other")
    await settle(store, parked(await claim_one(store, room=1), reason))
    assert order(await claim(store, now=at(1000))) == [("other", 1)]


Act = Callable[..., Awaitable[None]]
WAYS_ON = [
    (ParkReason.DEAD, "requeue", 1),
    (ParkReason.DEAD, "discard", 2),
    (ParkReason.HELD, "confirm", 2),
    (ParkReason.HELD, "deny", 1),
    (ParkReason.HELD, "discard", 2),
    (ParkReason.UNRECORDED, "repair", 1),
    (ParkReason.UNRECORDED, "discard", 2),
]


@pytest.mark.parametrize(("reason", "act", "next_one"), WAYS_ON)
async def test_what_a_person_does_with_a_parked_head_moves_its_key(
    store: Subject, reason: ParkReason, act: str, next_one: int
) -> None:
    id, _ = enqueue_lane(store, 2)
    await settle(store, parked(await claim_one(store), reason))
    chosen: Act = getattr(store, act)
    await chosen(id, **ACT, now=at(1))
    assert (await claim_one(store, now=at(1))).sequence == next_one


@pytest.mark.req("G-16")
async def test_a_dead_head_lets_its_key_go_on_where_the_destination_says_so(store: Subject) -> None:
    enqueue_lane(store, 2)
    await settle(store, parked(await claim_one(store), halts=False))
    assert order(await claim(store)) == [K2]


async def test_a_parked_message_halts_only_what_comes_after_it(store: Subject) -> None:
    first, second, _ = enqueue_lane(store, 3)
    await settle(store, parked(await claim_one(store), halts=False))
    await settle(store, parked(await claim_one(store)))
    await store.requeue(first, **ACT, out_of_order=True, now=at(1))
    head = await claim_one(store, now=at(1))
    assert head.id == first
    await deliver(store, head, now=at(1))
    assert await claim(store, now=at(1)) == []
    await store.discard(second, **ACT, now=at(2))
    assert order(await claim(store, now=at(2))) == [K3]


# advanced


async def test_an_advanced_head_is_still_the_head(store: Subject) -> None:
    enqueue_lane(store, 2)
    first = await claim_one(store)
    await settle(store, advanced(first, "second"))
    again = await claim_one(store)
    assert (again.id, again.stage, again.sequence) == (first.id, "second", 1)
    assert await claim(store) == []


async def test_a_head_that_advances_to_another_destination_takes_its_key_along(store: Subject) -> None:
    enqueue_lane(store, 2)
    await settle(store, advanced(await claim_one(store), "second", destination="bank"))
    assert await claim(store) == []
    there = await claim_one(store, destination="bank")
    assert (there.sequence, there.stage) == (1, "second")
    await deliver(store, there)
    assert order(await claim(store)) == [K2]


# cancelled


async def test_a_cancelled_head_lets_the_next_go(store: Subject) -> None:
    first, _ = enqueue_lane(store, 2)
    assert await store.cancel(first, now=at(1)) is CancelAnswer.CANCELLED
    assert order(await claim(store, now=at(1))) == [K2]


async def test_a_cancel_behind_the_head_changes_nothing_for_it(store: Subject) -> None:
    _, second, _ = enqueue_lane(store, 3)
    assert await store.cancel(second, now=at(1)) is CancelAnswer.CANCELLED
    head = await claim_one(store, now=at(1))
    assert head.sequence == 1
    assert await claim(store, now=at(1)) == []
    await deliver(store, head, now=at(2))
    assert order(await claim(store, now=at(2))) == [K3]


async def test_a_head_in_doubt_that_is_cancelled_is_asked_for_at_once_and_stays_the_head(store: Subject) -> None:
    first, _ = enqueue_lane(store, 2)
    await settle(store, retried(await claim_one(store), in_doubt=True, delay_seconds=60), now=at(1))
    assert await store.cancel(first, now=at(2)) is CancelAnswer.IN_DOUBT
    again = await claim_one(store, now=at(2))
    assert (again.id, again.cancel_requested) == (first, True)
    await settle(store, retried(again), now=at(3))
    assert store.state_of(first) == "cancelled"
    assert order(await claim(store, now=at(3))) == [K2]


async def test_a_head_that_was_cancelled_in_flight_and_is_handed_back_lets_the_next_go(store: Subject) -> None:
    first, _ = enqueue_lane(store, 2)
    head = await claim_one(store)
    await store.cancel(first, now=at(1))
    await store.hand_back(ALICE, [head.fence], now=at(2))
    assert store.state_of(first) == "cancelled"
    assert order(await claim(store, now=at(2))) == [K2]


# priority


async def test_priority_orders_between_keys_and_never_inside_one(store: Subject) -> None:
    enqueue_lane(store, 1, priority="low")
    enqueue_lane(store, 1, priority="high")
    enqueue_lane(store, 1, key="other", priority="high")
    assert order(await claim(store, priority=Priority.HIGH)) == [("other", 1)]
    low = await claim_one(store, priority=Priority.LOW)
    assert (low.order_by, low.sequence) == K1
    await deliver(store, low)
    assert order(await claim(store, priority=Priority.HIGH)) == [K2]


# nothing is forgotten


async def test_lanes_need_no_mending_whatever_blocks_them(store: Subject) -> None:
    enqueue_lane(store, 2)
    enqueue_lane(store, 2, key="halted")
    enqueue_lane(store, 2, key="delayed", due_at=at(60))
    enqueue_lane(store, 2, key="waiting", destination="bank")
    _, halted = sorted(await claim(store), key=lambda a: a.order_by == "halted")
    await settle(store, parked(halted))
    assert (await store.mend_lanes(lanes=10, now=at(1))).mended == 0
