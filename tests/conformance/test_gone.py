"""Messages whose rows are gone: an administrator dropped a partition with open messages. They park themselves, once,
and delay no other (G-18, G-31)."""

from __future__ import annotations

import pytest

from redrive.answers import MESSAGE_GONE
from redrive.message import MessageId, ParkReason
from redrive.ports import Claimed, ClaimRequest, HandOver
from tests.conformance.steps import (
    ACT,
    ALICE,
    BOB,
    LEASE_SECONDS,
    MAIL,
    at,
    claim,
    claim_one,
    crashed,
    delivered,
    enqueue,
    enqueue_lane,
    parked,
    settle,
)
from tests.conformance.subjects import Subject
from tests.model_store.transitions import Parked, Pending

pytestmark = [pytest.mark.req("G-18"), pytest.mark.req("G-31")]

ROOMS = [ClaimRequest(MAIL, 1, 100)]


def gone(store: Subject, id: MessageId) -> Parked:
    place = store.place_of(id)
    assert isinstance(place, Parked)
    return place


async def test_a_claim_parks_it_and_takes_its_neighbours(store: Subject) -> None:
    before, lost, after = (enqueue(store) for _ in range(3))
    store.drop_row(lost)
    claimed = await store.claim(ALICE, ROOMS, lease_seconds=LEASE_SECONDS, now=at(1))
    assert sorted(attempt.id for attempt in claimed.attempts) == sorted([before, after])
    assert (claimed.gone, claimed.expired) == (1, 0)
    place = gone(store, lost)
    assert (place.reason, place.error_class, place.halts) == (ParkReason.DEAD, MESSAGE_GONE, True)
    assert (place.attempt, place.spent, place.crashes, place.in_doubt_since) == (1, 0, 0, None)
    (entry,) = await store.history(lost)
    assert (entry.verb, entry.settlement, entry.code, entry.worker) == ("settle", "park", MESSAGE_GONE, ALICE)
    assert await store.leases_of(ALICE) == sorted(attempt.fence for attempt in claimed.attempts)


async def test_a_suspect_is_held_with_its_doubt_and_counts_no_further_crash(store: Subject) -> None:
    lost = await crashed(store)
    store.drop_row(lost)
    claimed = await store.claim_suspect(BOB, [MAIL], lease_seconds=LEASE_SECONDS, now=at(1))
    assert claimed == Claimed([], gone=1)
    place = gone(store, lost)
    assert (place.reason, place.error_class, place.crashes) == (ParkReason.HELD, MESSAGE_GONE, 0)
    assert place.in_doubt_since == at(0)
    assert await store.leases_of(BOB) == []
    assert not await store.suspect_destinations([MAIL], now=at(2))


async def test_one_whose_answer_is_kept_keeps_it(store: Subject) -> None:
    lost = enqueue(store)
    await settle(store, parked(await claim_one(store), ParkReason.UNRECORDED))
    await store.repair(lost, **ACT, now=at(1))
    store.drop_row(lost)
    assert (await store.claim(ALICE, ROOMS, lease_seconds=LEASE_SECONDS, now=at(2))).gone == 1
    place = gone(store, lost)
    assert (place.reason, place.error_class) == (ParkReason.UNRECORDED, MESSAGE_GONE)
    assert place.kept_answer is not None


@pytest.mark.req("G-07")
async def test_in_an_ordering_key_it_halts_the_key_and_is_not_handed_over(store: Subject) -> None:
    first, lost, third = enqueue_lane(store, 3)
    other = enqueue_lane(store, 1, key="other")
    attempts = await claim(store, now=at(1))
    assert sorted(attempt.id for attempt in attempts) == sorted([first, *other])
    store.drop_row(lost)
    outcomes = [delivered(attempt) for attempt in attempts]
    settled = await store.settle(ALICE, outcomes, hand_over=HandOver({first}, LEASE_SECONDS), now=at(2))
    assert (settled.settled, list(settled.handed_over)) == (2, [])
    assert (gone(store, lost).error_class, gone(store, lost).halts) == (MESSAGE_GONE, True)
    assert await claim(store, now=at(3)) == []
    await store.discard(lost, **ACT, now=at(4))
    assert [attempt.id for attempt in await claim(store, now=at(4))] == [third]


async def test_one_that_is_requeued_all_the_same_parks_itself_again(store: Subject) -> None:
    lost = enqueue(store)
    store.drop_row(lost)
    await claim(store, now=at(1))
    await store.requeue(lost, **ACT, now=at(2))
    assert isinstance(store.place_of(lost), Pending)
    assert (await store.claim(ALICE, ROOMS, lease_seconds=LEASE_SECONDS, now=at(3))).gone == 1
    assert gone(store, lost).error_class == MESSAGE_GONE


async def test_one_that_has_expired_ends_as_expired(store: Subject) -> None:
    lost = enqueue(store, expires_at=at(5))
    store.drop_row(lost)
    await store.claim(ALICE, ROOMS, lease_seconds=LEASE_SECONDS, now=at(6))
    assert store.state_of(lost) == "expired"
