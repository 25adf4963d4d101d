"""hand_back gives a claim back as it was; renew keeps one that is still worked on. Both are for its worker only."""

from __future__ import annotations

from dataclasses import replace

import pytest

from redrive.message import CancelAnswer, Fence
from tests.conformance.steps import (
    ACT,
    ALICE,
    BOB,
    LEASE_SECONDS,
    NOBODY,
    T0,
    at,
    claim,
    claim_alone,
    claim_one,
    crashed,
    delivered,
    enqueue,
    put_into,
    retried,
    settle,
)
from tests.conformance.subjects import Subject
from tests.model_store.transitions import Lease


@pytest.mark.req("G-09")
async def test_a_claim_handed_back_spends_nothing_and_keeps_its_number(store: Subject) -> None:
    id = enqueue(store)
    before = store.place_of(id)
    fence = (await claim_one(store)).fence
    assert await store.hand_back(ALICE, [fence], now=at(1)) == [fence]
    assert before is not None
    assert store.place_of(id) == replace(before, attempt=1)  # type: ignore[type-var]
    (row,) = await store.history(id)
    assert (row.verb, row.settlement, row.answer, row.closed) == ("hand_back", "hand_back", None, None)
    assert (row.worker, row.claimed_at, row.completed_at, row.spent) == (ALICE, T0, at(1), 0)
    assert (await claim_one(store, now=at(1))).number == 2


@pytest.mark.req("G-09")
async def test_what_a_message_carries_survives_the_hand_back(store: Subject) -> None:
    id = enqueue(store)
    await settle(store, retried(await claim_one(store), in_doubt=True, down=True, lookups=2), now=at(1))
    before = store.place_of(id)
    fence = (await claim_one(store, now=at(2))).fence
    await store.hand_back(ALICE, [fence], now=at(3))
    assert before is not None
    assert store.place_of(id) == replace(before, attempt=2)  # type: ignore[type-var]


@pytest.mark.req("G-14")
async def test_a_worker_can_ask_which_claims_it_holds(store: Subject) -> None:
    for _ in range(3):
        enqueue(store)
    assert await store.leases_of(ALICE) == []
    ours = sorted(attempt.fence for attempt in await claim(store, room=2))
    (other,) = await claim(store, worker=BOB)
    assert await store.leases_of(ALICE) == ours
    assert await store.leases_of(BOB) == [other.fence]
    await store.hand_back(ALICE, ours[:1], now=at(1))
    assert await store.leases_of(ALICE) == ours[1:]


@pytest.mark.req("G-18")
async def test_a_suspect_handed_back_is_still_a_suspect(store: Subject) -> None:
    id = await crashed(store)
    before = store.place_of(id)
    fence = (await claim_alone(store, now=at(1))).fence
    assert await store.hand_back(BOB, [fence], now=at(2)) == [fence]
    assert before is not None
    assert store.place_of(id) == replace(before, attempt=2)  # type: ignore[type-var]


@pytest.mark.req("G-24")
async def test_a_cancel_asked_for_meanwhile_ends_a_claim_handed_back(store: Subject) -> None:
    id = enqueue(store)
    fence = (await claim_one(store)).fence
    await store.cancel(id, now=at(1))
    assert await store.hand_back(ALICE, [fence], now=at(2)) == [fence]
    assert store.state_of(id) == "cancelled"
    assert [(row.verb, row.closed) for row in await store.history(id)] == [("hand_back", "cancelled")]


@pytest.mark.req("G-13")
@pytest.mark.req("G-24")
async def test_a_cancelled_claim_in_doubt_is_handed_back_to_be_looked_up(store: Subject) -> None:
    id = enqueue(store)
    await settle(store, retried(await claim_one(store), in_doubt=True), now=at(1))
    fence = (await claim_one(store, now=at(2))).fence
    await store.cancel(id, now=at(3))
    await store.hand_back(ALICE, [fence], now=at(4))
    again = await claim_one(store, now=at(5))
    assert (again.cancel_requested, again.in_doubt_since) == (True, at(1))


@pytest.mark.req("G-14")
async def test_nobody_hands_back_the_claim_of_another(store: Subject) -> None:
    id = enqueue(store)
    fence = (await claim_one(store)).fence
    assert await store.hand_back(BOB, [fence], now=at(1)) == []
    assert store.state_of(id) == "leased"


@pytest.mark.req("G-14")
async def test_a_lost_or_settled_claim_is_not_handed_back(store: Subject) -> None:
    enqueue(store)
    first = await claim_one(store)
    await store.reap(limit=1, worker=ALICE, now=at(1))
    second = await claim_alone(store, worker=ALICE, now=at(2))
    assert await store.hand_back(ALICE, [first.fence], now=at(3)) == []
    assert await store.is_leased(second.fence)
    await settle(store, delivered(second), now=at(4))
    assert await store.hand_back(ALICE, [second.fence, Fence(NOBODY, 1)], now=at(5)) == []


async def test_a_claim_named_twice_is_handed_back_once(store: Subject) -> None:
    id = enqueue(store)
    fence = (await claim_one(store)).fence
    assert await store.hand_back(ALICE, [fence, fence], now=at(1)) == [fence]
    assert len(await store.history(id)) == 1


@pytest.mark.req("G-24")
@pytest.mark.req("G-27")
async def test_a_cancelled_claim_that_waits_for_its_record_is_handed_back(store: Subject) -> None:
    id = await put_into(store, "unrecorded")
    await store.repair(id, **ACT, now=at(2))
    fence = (await claim_one(store, now=at(3))).fence
    assert await store.cancel(id, now=at(4)) is CancelAnswer.IN_FLIGHT
    await store.hand_back(ALICE, [fence], now=at(5))
    again = await claim_one(store, now=at(6))
    assert (again.cancel_requested, again.kept_answer is not None) == (True, True)


async def test_nothing_handed_back_or_renewed_is_nothing(store: Subject) -> None:
    assert await store.hand_back(ALICE, [], now=at(1)) == []
    assert await store.renew(ALICE, [], lease_seconds=LEASE_SECONDS, now=at(1)) == []


@pytest.mark.req("G-14")
async def test_a_renewed_lease_ends_later_by_its_new_length(store: Subject) -> None:
    id = enqueue(store)
    fence = (await claim_one(store)).fence
    assert await store.renew(ALICE, [fence], lease_seconds=60, now=at(20)) == [fence]
    place = store.place_of(id)
    assert isinstance(place, Lease)
    assert (place.until, place.lease_seconds, place.claimed_at) == (at(80), 60, T0)
    assert (await store.reap(limit=9, now=at(80))).requeued == 0
    assert (await store.reap(limit=9, now=at(80.1))).requeued == 1


@pytest.mark.req("G-14")
async def test_nobody_renews_the_lease_of_another(store: Subject) -> None:
    id = enqueue(store)
    fence = (await claim_one(store)).fence
    before = store.place_of(id)
    assert await store.renew(BOB, [fence], lease_seconds=60, now=at(20)) == []
    assert store.place_of(id) == before


@pytest.mark.req("G-14")
async def test_a_lost_lease_is_not_renewed(store: Subject) -> None:
    enqueue(store)
    first = await claim_one(store)
    await store.reap(limit=1, worker=ALICE, now=at(1))
    assert await store.renew(ALICE, [first.fence], lease_seconds=60, now=at(2)) == []
    second = await claim_alone(store, worker=ALICE, now=at(3))
    fences = [first.fence, second.fence]
    assert await store.renew(ALICE, fences, lease_seconds=60, now=at(4)) == [second.fence]


@pytest.mark.req("G-14")
async def test_a_lease_that_ran_out_can_be_renewed_until_it_is_reaped(store: Subject) -> None:
    enqueue(store)
    fence = (await claim_one(store)).fence
    assert await store.renew(ALICE, [fence], lease_seconds=LEASE_SECONDS, now=at(99)) == [fence]
    assert (await store.reap(limit=9, now=at(100))).requeued == 0


@pytest.mark.req("G-24")
async def test_a_worker_can_ask_what_happened_to_its_claims_since(store: Subject) -> None:
    plain, cancelled, expires = (enqueue(store, expires_at=at(5) if n == 2 else None) for n in range(3))
    fences = {attempt.id: attempt.fence for attempt in await claim(store, room=3)}
    assert await store.cancel(cancelled, now=at(1)) is CancelAnswer.IN_FLIGHT
    asked = [fences[id] for id in (plain, cancelled, expires)]
    found = {state.fence.id: tuple(state[1:]) for state in await store.check_claims(ALICE, asked, now=at(6))}
    assert found == {plain: (False, False, False), cancelled: (True, False, False), expires: (False, True, False)}
    assert await store.check_claims(BOB, asked, now=at(6)) == []
    await store.hand_back(ALICE, asked[:1], now=at(6))
    assert [state.fence for state in await store.check_claims(ALICE, asked[:2], now=at(6))] == asked[1:2]


@pytest.mark.req("G-31")
async def test_a_claim_can_be_handed_back_as_a_suspect(store: Subject) -> None:
    """Where no thread is left for it: a child process is to run it."""
    id = enqueue(store)
    before = store.place_of(id)
    fence = (await claim_one(store)).fence
    assert await store.hand_back(ALICE, [fence], suspect=True, now=at(1)) == [fence]
    assert before is not None
    assert store.place_of(id) == replace(before, attempt=1, suspect=True)  # type: ignore[type-var]
    assert await claim(store, now=at(1)) == []
    assert (await claim_alone(store, now=at(1))).id == id
