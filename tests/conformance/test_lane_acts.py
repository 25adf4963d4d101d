"""What a person does to an ordering key: skip its head, and requeue what it went on without (ruling 15)."""

from __future__ import annotations

from typing import Any

import pytest

from redrive.errors import ActRefused, InvalidValue, NotFound
from redrive.message import MessageId, ParkReason
from tests.conformance.steps import (
    ACT,
    ALICE,
    BOB,
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
from tests.model_store.transitions import Pending

pytestmark = pytest.mark.req("G-07")


async def skip(store: Subject, *, key: str = "k", tenant: str = "default", now: float = 9, **values: Any) -> None:
    await store.skip(tenant, key, **ACT, now=at(now), **values)


async def blocked(store: Subject, by: str) -> tuple[MessageId, MessageId]:
    """A key with two messages whose head waits for the given reason."""
    due_at = at(600) if by == "delayed" else None
    first, second = enqueue(store, order_by="k", due_at=due_at), enqueue(store, order_by="k")
    if by in ("due", "delayed"):
        return first, second
    head = await claim_one(store)
    if by == "retry":
        await settle(store, retried(head, delay_seconds=600), now=at(1))
    elif by == "retry in doubt":
        await settle(store, retried(head, in_doubt=True, delay_seconds=600), now=at(1))
    elif by == "suspect":
        await store.reap(limit=10, worker=ALICE, now=at(1))
    else:
        await settle(store, parked(head, ParkReason(by)), now=at(1))
    return first, second


KINDS_OF_HEAD = ("due", "delayed", "retry", "retry in doubt", "suspect", "dead", "held", "unrecorded")


@pytest.mark.parametrize("by", KINDS_OF_HEAD)
async def test_a_skipped_head_is_closed_for_good_and_the_key_goes_on(store: Subject, by: str) -> None:
    first, second = await blocked(store, by)
    await skip(store)
    assert (store.state_of(first), store.state_of(second)) == ("skipped", "pending")
    last = (await store.history(first))[-1]
    assert (last.verb, last.closed, last.actor, last.reason) == ("skip", "skipped", ACT["actor"], ACT["reason"])
    assert order(await claim(store, now=at(9))) == [("k", 2)]


async def test_a_skip_takes_the_head_only(store: Subject) -> None:
    ids = enqueue_lane(store, 3)
    await skip(store)
    await skip(store)
    assert [store.state_of(id) for id in ids] == ["skipped", "skipped", "pending"]


async def test_the_lower_of_a_waiting_and_a_parked_message_is_skipped(store: Subject) -> None:
    first, second, third = enqueue_lane(store, 3)
    await settle(store, parked(await claim_one(store), halts=False))
    await settle(store, parked(await claim_one(store)))
    await store.requeue(first, **ACT, out_of_order=True, now=at(1))
    await skip(store)
    assert [store.state_of(id) for id in (first, second, third)] == ["skipped", "parked", "pending"]
    await skip(store)
    assert [store.state_of(id) for id in (first, second, third)] == ["skipped", "skipped", "pending"]


async def test_a_dead_message_that_does_not_halt_is_not_the_head_to_skip(store: Subject) -> None:
    first, second = enqueue_lane(store, 2)
    await settle(store, parked(await claim_one(store), halts=False))
    await skip(store)
    assert (store.state_of(first), store.state_of(second)) == ("parked", "skipped")


async def test_a_head_in_flight_is_not_skipped(store: Subject) -> None:
    first, _ = enqueue_lane(store, 2)
    await claim_one(store)
    with pytest.raises(ActRefused, match="being sent just now"):
        await skip(store)
    assert store.state_of(first) == "leased"


async def test_a_skip_of_a_sequence_that_is_not_the_head_any_more_is_refused(store: Subject) -> None:
    ids = enqueue_lane(store, 3)
    await skip(store, sequence=1)
    with pytest.raises(ActRefused, match="another one by now"):
        await skip(store, sequence=1)
    assert [store.state_of(id) for id in ids] == ["skipped", "pending", "pending"]


@pytest.mark.parametrize("parks", [False, True])
async def test_a_key_where_nothing_waits_has_nothing_to_skip(store: Subject, parks: bool) -> None:
    enqueue_lane(store, 1)
    head = await claim_one(store)
    if parks:
        await settle(store, parked(head, halts=False))
    else:
        await deliver(store, head)
    with pytest.raises(ActRefused, match="nothing of it waits"):
        await skip(store)


@pytest.mark.parametrize(("tenant", "key"), [("default", "unknown"), ("other", "k")])
async def test_a_key_that_never_was_is_not_found(store: Subject, tenant: str, key: str) -> None:
    enqueue_lane(store, 1)
    with pytest.raises(NotFound, match="no ordering key"):
        await skip(store, tenant=tenant, key=key)


@pytest.mark.parametrize("who", [{"actor": " ", "reason": "why"}, {"actor": "ada", "reason": ""}])
async def test_a_skip_needs_an_actor_and_a_reason(store: Subject, who: dict[str, Any]) -> None:
    (id,) = enqueue_lane(store, 1)
    with pytest.raises(InvalidValue, match="an actor and a reason"):
        await store.skip("default", "k", **who, now=at(1))
    assert store.state_of(id) == "pending"


# requeue


@pytest.mark.req("G-16")
async def test_a_requeued_message_goes_before_all_that_still_wait(store: Subject) -> None:
    first, *_ = enqueue_lane(store, 4)
    await settle(store, parked(await claim_one(store), halts=False))
    await deliver(store, await claim_one(store))
    await store.requeue(first, **ACT, out_of_order=True, now=at(1))
    taken = []
    for _ in range(3):
        taken.append(await claim_one(store, now=at(1)))
        await deliver(store, taken[-1], now=at(1))
    assert [(a.sequence, a.number) for a in taken] == [(1, 2), (3, 1), (4, 1)]


@pytest.mark.parametrize("went_on", ["claimed", "delivered", "claimed and back", "cancelled", "skipped"])
async def test_a_message_that_its_key_went_on_without_is_requeued_only_if_that_is_meant(
    store: Subject, went_on: str
) -> None:
    first, second = enqueue_lane(store, 2)
    await settle(store, parked(await claim_one(store), halts=False))
    if went_on == "cancelled":
        await store.cancel(second, now=at(1))
    elif went_on == "skipped":
        await skip(store, now=1)
    else:
        later = await claim_one(store)
        if went_on == "delivered":
            await deliver(store, later)
        elif went_on == "claimed and back":
            await store.hand_back(ALICE, [later.fence], now=at(1))
    with pytest.raises(ActRefused, match="went out without it"):
        await store.requeue(first, **ACT, now=at(2))
    assert store.state_of(first) == "parked"
    await store.requeue(first, **ACT, out_of_order=True, now=at(3))
    assert isinstance(store.place_of(first), Pending)


@pytest.mark.parametrize("halts", [True, False])
async def test_a_message_that_its_key_still_waits_behind_is_requeued_without_further_words(
    store: Subject, halts: bool
) -> None:
    first, _ = enqueue_lane(store, 2)
    await settle(store, parked(await claim_one(store), halts=halts))
    await store.requeue(first, **ACT, now=at(1))
    assert order(await claim(store, now=at(1))) == [("k", 1)]


async def test_the_last_of_its_key_is_requeued_without_further_words(store: Subject) -> None:
    enqueue_lane(store, 1)
    await deliver(store, await claim_one(store))
    (last,) = enqueue_lane(store, 1)
    await settle(store, parked(await claim_one(store), halts=False))
    await store.requeue(last, **ACT, now=at(1))
    assert order(await claim(store, now=at(1))) == [("k", 2)]


async def test_a_requeued_message_waits_while_a_later_one_is_in_hand(store: Subject) -> None:
    first, _ = enqueue_lane(store, 2)
    await settle(store, parked(await claim_one(store), halts=False))
    later = await claim_one(store)
    await store.requeue(first, **ACT, out_of_order=True, now=at(1))
    assert await claim(store, now=at(1), worker=BOB) == []
    await deliver(store, later, now=at(2))
    assert order(await claim(store, now=at(2))) == [("k", 1)]


async def test_a_suspect_that_dies_alone_stays_the_head_and_halts_its_key_when_parked(store: Subject) -> None:
    id, _ = enqueue_lane(store, 2)
    await claim_one(store)
    await store.reap(limit=10, worker=ALICE, now=at(1))
    await settle(store, parked(await claim_alone(store, now=at(2))), now=at(3), worker=BOB)
    assert (store.state_of(id), await claim(store, now=at(3))) == ("parked", [])


@pytest.mark.parametrize("ended", ["cancelled", "expired"])
async def test_a_halted_head_can_be_requeued_in_order_after_a_later_one_merely_ended(
    store: Subject, ended: str
) -> None:
    """None of its key was sent past it, so nothing would be overtaken."""
    first = enqueue(store, order_by="k")
    second = enqueue(store, order_by="k", expires_at=at(5) if ended == "expired" else None)
    third = enqueue(store, order_by="k")
    await settle(store, parked(await claim_one(store)), now=at(1))
    if ended == "cancelled":
        await store.cancel(second, now=at(2))
    else:
        await store.expire(limit=10, now=at(6))
    assert store.state_of(second) == ended
    await store.requeue(first, **ACT, now=at(7))
    assert [attempt.id for attempt in await claim(store, now=at(8))] == [first]
    assert store.state_of(third) == "pending"


async def test_a_head_that_was_requeued_out_of_order_and_halts_has_still_been_overtaken(store: Subject) -> None:
    first, second = enqueue(store, order_by="k"), enqueue(store, order_by="k")
    await settle(store, parked(await claim_one(store), halts=False), now=at(1))
    await settle(store, delivered(await claim_one(store, now=at(2))), now=at(3))
    await store.requeue(first, **ACT, out_of_order=True, now=at(4))
    await settle(store, parked(await claim_one(store, now=at(5))), now=at(6))
    with pytest.raises(ActRefused, match="later messages"):
        await store.requeue(first, **ACT, now=at(7))
    assert store.state_of(second) == "delivered"
