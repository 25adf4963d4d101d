"""reap and expire: claims that ran out come back in doubt, and what nobody claims in time is closed."""

from __future__ import annotations

from datetime import timedelta

import pytest

from redrive import answers
from redrive.answers import Delivered
from redrive.message import ParkReason
from redrive.ports import Reaped
from tests.conformance.steps import (
    ACT,
    ALICE,
    BOB,
    LEASE_SECONDS,
    T0,
    at,
    claim,
    claim_alone,
    claim_one,
    crashed,
    enqueue,
    parked,
    retried,
    settle,
)
from tests.conformance.subjects import Subject
from tests.model_store.transitions import Pending


def pending(store: Subject) -> Pending:
    (place,) = store.places().values()
    assert isinstance(place, Pending)
    return place


@pytest.mark.req("G-14")
async def test_a_claim_older_than_its_lease_is_requeued_with_the_same_id(store: Subject) -> None:
    id = enqueue(store)
    await claim_one(store)
    assert await store.reap(limit=9, now=at(LEASE_SECONDS)) == Reaped(0)
    assert await store.reap(limit=9, now=at(31)) == Reaped(1)
    place = pending(store)
    assert (place.id, place.due_at, place.attempt, place.spent) == (id, at(31), 1, 0)
    assert (place.in_doubt_since, place.suspect, place.first_failed_at) == (at(31), True, at(31))
    (row,) = await store.history(id)
    assert (row.verb, row.code, row.settlement, row.closed) == ("reap", "LEASE_RAN_OUT", None, None)
    assert (row.attempt, row.worker, row.claimed_at, row.completed_at) == (1, ALICE, T0, at(31))


@pytest.mark.req("G-14")
async def test_a_worker_known_to_be_dead_loses_all_its_claims_at_once_and_no_other(store: Subject) -> None:
    for seconds in range(3):
        enqueue(store, now=at(seconds))
    mine = await claim(store, now=at(3), room=2)
    other = await claim_one(store, now=at(3), worker=BOB)
    assert await store.reap(limit=9, worker=ALICE, now=at(4)) == Reaped(2)
    assert await store.is_leased(other.fence)
    codes = [row.code for a in mine for row in await store.history(a.id)]
    assert codes == ["WORKER_DIED", "WORKER_DIED"]


@pytest.mark.req("G-14")
async def test_reaping_is_bounded_by_its_limit(store: Subject) -> None:
    for _ in range(5):
        enqueue(store)
    await claim(store)
    assert await store.reap(limit=2, now=at(31)) == Reaped(2)
    assert (store.conservation().leased, store.conservation().pending) == (3, 2)
    assert await store.reap(limit=9, now=at(31)) == Reaped(3)
    assert await store.reap(limit=9, now=at(31)) == Reaped(0)


@pytest.mark.req("G-14")
async def test_an_outage_of_the_server_does_not_turn_live_work_into_crashes(store: Subject) -> None:
    start = store.server_started_at
    enqueue(store, now=start - timedelta(seconds=100))
    await claim_one(store, now=start - timedelta(seconds=100))
    within, after = start + timedelta(seconds=30), start + timedelta(seconds=30.001)
    assert await store.reap(limit=9, now=within) == Reaped(0)
    assert await store.reap(limit=9, now=after) == Reaped(1)


@pytest.mark.req("G-14")
async def test_the_servers_start_does_not_protect_a_worker_known_to_be_dead(store: Subject) -> None:
    start = store.server_started_at
    enqueue(store, now=start)
    await claim_one(store, now=start)
    assert await store.reap(limit=9, worker=ALICE, now=start) == Reaped(1)


@pytest.mark.req("G-18")
async def test_a_crash_in_company_does_not_count_and_one_alone_does(store: Subject) -> None:
    await crashed(store)
    assert pending(store).crashes == 0
    for crashes in (1, 2):
        await claim_alone(store, now=at(crashes))
        await store.reap(limit=1, worker=BOB, now=at(crashes))
        assert (pending(store).crashes, pending(store).spent) == (crashes, 0)
    assert (await claim_alone(store, now=at(3))).crashes == 2


@pytest.mark.req("G-13")
@pytest.mark.req("G-14")
async def test_what_a_message_carries_survives_the_reap(store: Subject) -> None:
    enqueue(store, expires_at=at(999))
    await settle(store, retried(await claim_one(store), in_doubt=True, down=True, lookups=2), now=at(1))
    await claim_one(store, now=at(2))
    await store.reap(limit=1, worker=ALICE, now=at(3))
    place = pending(store)
    assert (place.spent, place.lookups, place.attempt, place.policy_version) == (1, 2, 2, "p2")
    assert (place.in_doubt_since, place.down_since, place.first_failed_at) == (at(1), at(1), at(1))
    assert place.expires_at == at(999)


@pytest.mark.req("G-27")
async def test_a_kept_answer_survives_the_reap(store: Subject) -> None:
    id = enqueue(store)
    await settle(store, parked(await claim_one(store), ParkReason.UNRECORDED), now=at(1))
    await store.repair(id, **ACT, now=at(2))
    await claim_one(store, now=at(3))
    await store.reap(limit=1, worker=ALICE, now=at(4))
    assert (await claim_alone(store, now=at(5))).kept_answer == answers.to_json(Delivered("r-1"))


@pytest.mark.req("G-24")
async def test_a_cancel_asked_for_travels_through_the_reap(store: Subject) -> None:
    id = enqueue(store)
    await claim_one(store)
    await store.cancel(id, now=at(1))
    await store.reap(limit=1, worker=ALICE, now=at(2))
    assert (await claim_alone(store, now=at(3))).cancel_requested


@pytest.mark.req("G-24")
@pytest.mark.req("G-28")
async def test_expire_closes_what_is_past_its_time_also_where_nothing_claims(store: Subject) -> None:
    id = enqueue(store, expires_at=at(10))
    enqueue(store)
    await store.pause("mail", **ACT, now=T0)
    assert await store.expire(limit=9, now=at(9.9)) == 0
    assert await store.expire(limit=9, now=at(10)) == 1
    assert store.state_of(id) == "expired"
    (row,) = await store.history(id)
    assert (row.verb, row.closed, row.completed_at, row.attempt) == ("expire", "expired", at(10), 0)


@pytest.mark.req("G-24")
async def test_expire_is_bounded_and_takes_the_longest_expired_first(store: Subject) -> None:
    late, early, middle = (enqueue(store, expires_at=at(seconds)) for seconds in (9, 5, 7))
    assert await store.expire(limit=2, now=at(10)) == 2
    assert [store.state_of(id) for id in (early, middle, late)] == ["expired", "expired", "pending"]


@pytest.mark.req("G-13")
@pytest.mark.req("G-24")
async def test_expire_leaves_what_is_in_doubt_or_in_flight(store: Subject) -> None:
    doubtful = enqueue(store, expires_at=at(10))
    await settle(store, retried(await claim_one(store), in_doubt=True, delay_seconds=5), now=at(1))
    flying = enqueue(store, expires_at=at(10))
    await claim_one(store, now=at(2))
    assert await store.expire(limit=9, now=at(11)) == 0
    assert (store.state_of(doubtful), store.state_of(flying)) == ("pending", "leased")


@pytest.mark.req("G-24")
@pytest.mark.req("G-27")
async def test_what_waits_for_its_record_does_not_expire(store: Subject) -> None:
    id = enqueue(store, expires_at=at(10))
    await settle(store, parked(await claim_one(store), ParkReason.UNRECORDED), now=at(1))
    await store.repair(id, **ACT, now=at(11))
    assert await store.expire(limit=9, now=at(12)) == 0
    attempt = await claim_one(store, now=at(12))
    assert (attempt.id, attempt.expired, attempt.kept_answer is not None) == (id, True, True)
