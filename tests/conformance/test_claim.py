"""claim: what is due goes to one worker, as much as it has room for, and what has expired is closed instead."""

from __future__ import annotations

import pytest

from redrive.message import NewMessage, Priority
from redrive.ports import Claimed, ClaimRequest
from tests.conformance.steps import (
    ACT,
    ALICE,
    BOB,
    LEASE_SECONDS,
    MAIL,
    T0,
    advanced,
    at,
    claim,
    claim_alone,
    claim_one,
    crashed,
    delivered,
    enqueue,
    retried,
    settle,
)
from tests.conformance.subjects import Subject


@pytest.mark.req("G-06")
async def test_a_claimed_message_is_leased_and_nobody_else_gets_it(store: Subject) -> None:
    id = enqueue(store)
    attempt = await claim_one(store)
    assert (attempt.id, attempt.number, attempt.alone) == (id, 1, False)
    assert store.state_of(id) == "leased"
    assert await claim(store, worker=BOB) == []


@pytest.mark.req("G-06")
async def test_an_attempt_carries_all_that_the_producer_handed_in(store: Subject) -> None:
    new = NewMessage(
        MAIL, {"to": "ada"}, key="k", tenant="acme", kind="welcome", headers={"trace": "1"}, priority="high"
    )
    id = store.enqueue(new, now=T0).id
    attempt = await claim_one(store, priority=Priority.HIGH, now=at(1))
    assert (attempt.id, attempt.payload, attempt.content_type) == (id, {"to": "ada"}, "application/json")
    assert (attempt.key, attempt.tenant, attempt.kind) == ("k", "acme", "welcome")
    assert (dict(attempt.headers), attempt.destination) == ({"trace": "1"}, MAIL)
    assert (attempt.created_at, attempt.claimed_at, attempt.lease_seconds) == (T0, at(1), LEASE_SECONDS)
    assert (attempt.stage, attempt.version, attempt.order_by, attempt.sequence) == ("first", 1, None, None)
    assert (attempt.spent, attempt.lookups, attempt.crashes, attempt.history()) == (0, 0, 0, ())


async def test_bytes_come_out_as_they_went_in(store: Subject) -> None:
    store.enqueue(NewMessage(MAIL, b"\x00\xff"), now=T0)
    attempt = await claim_one(store)
    assert (attempt.body, attempt.content_type) == (b"\x00\xff", "application/octet-stream")


async def test_rooms_of_several_destinations_and_levels_are_each_kept(store: Subject) -> None:
    for seconds in range(4):
        for destination in (MAIL, "bank"):
            for priority in Priority:
                enqueue(store, now=at(seconds), destination=destination, priority=priority)
    claim_requests = [ClaimRequest(MAIL, 0, 3), ClaimRequest(MAIL, 2, 1), ClaimRequest("bank", 1, 2)]
    claimed = await store.claim(ALICE, claim_requests, lease_seconds=LEASE_SECONDS, now=at(9))
    got = [(a.destination, store.places()[a.id]) for a in claimed.attempts]
    assert sorted((name, getattr(place, "level", None)) for name, place in got) == [
        ("bank", 1),
        ("bank", 1),
        (MAIL, 0),
        (MAIL, 0),
        (MAIL, 0),
        (MAIL, 2),
    ]


async def test_the_longest_due_goes_first(store: Subject) -> None:
    late, early, middle = (enqueue(store, now=at(seconds)) for seconds in (5, 1, 3))
    assert [a.id for a in await claim(store, now=at(9), room=1)] == [early]
    assert {a.id for a in await claim(store, now=at(9), room=2)} == {middle, late}


async def test_room_zero_takes_nothing(store: Subject) -> None:
    enqueue(store)
    assert await claim(store, room=0) == []
    assert store.conservation().pending == 1


async def test_no_rooms_at_all_take_nothing(store: Subject) -> None:
    enqueue(store)
    assert await store.claim(ALICE, [], lease_seconds=LEASE_SECONDS, now=T0) == Claimed([], 0)


async def test_an_unknown_destination_has_nothing(store: Subject) -> None:
    enqueue(store)
    assert await claim(store, destination="nowhere") == []


@pytest.mark.req("G-24")
async def test_a_message_is_claimed_at_its_due_time_and_not_before(store: Subject) -> None:
    id = enqueue(store, due_at=at(60))
    assert await claim(store, now=at(59)) == []
    assert (await claim_one(store, now=at(60))).id == id


async def test_a_due_time_in_the_past_counts_from_now(store: Subject) -> None:
    first = enqueue(store, now=at(1))
    enqueue(store, now=at(2), due_at=T0)
    assert (await claim(store, now=at(9), room=1))[0].id == first


async def test_time_is_the_stores_own_where_none_is_given(store: Subject) -> None:
    store.enqueue(NewMessage(MAIL, 1))
    before = store.clock()
    claimed = await store.claim(ALICE, [ClaimRequest(MAIL, 1, 1)], lease_seconds=LEASE_SECONDS)
    assert before <= claimed.attempts[0].claimed_at <= store.clock()


@pytest.mark.req("G-25")
async def test_a_paused_destination_is_not_claimed_for(store: Subject) -> None:
    await crashed(store)
    enqueue(store)
    await store.pause(MAIL, **ACT, now=T0)
    assert await claim(store, now=at(1)) == []
    suspects = await store.claim_suspect(BOB, [MAIL], lease_seconds=LEASE_SECONDS, now=at(1))
    assert suspects == Claimed([], 0)
    assert not await store.suspect_destinations([MAIL], now=at(1))
    await store.resume(MAIL, **ACT, now=at(2))
    assert len(await claim(store, now=at(2))) == 1
    assert await store.suspect_destinations([MAIL], now=at(2))


@pytest.mark.req("G-24")
@pytest.mark.req("G-28")
async def test_what_has_expired_is_closed_by_the_claim_and_not_handed_out(store: Subject) -> None:
    id = enqueue(store, expires_at=at(10))
    claimed = await store.claim(ALICE, [ClaimRequest(MAIL, 1, 5)], lease_seconds=LEASE_SECONDS, now=at(10))
    assert claimed == Claimed([], 1)
    assert store.state_of(id) == "expired"
    (row,) = await store.history(id)
    assert (row.verb, row.closed, row.attempt, row.worker) == ("expire", "expired", 0, None)


@pytest.mark.req("G-24")
async def test_a_message_can_be_claimed_until_it_expires(store: Subject) -> None:
    enqueue(store, expires_at=at(10))
    assert not (await claim_one(store, now=at(9))).expired


@pytest.mark.req("G-13")
@pytest.mark.req("G-24")
async def test_what_has_expired_in_doubt_is_handed_out_to_be_looked_up(store: Subject) -> None:
    id = enqueue(store, expires_at=at(10))
    await settle(store, retried(await claim_one(store), in_doubt=True), now=at(1))
    attempt = await claim_one(store, now=at(20))
    assert (attempt.id, attempt.expired, attempt.in_doubt_since) == (id, True, at(1))


async def test_a_claim_again_shows_the_earlier_attempts_oldest_first(store: Subject) -> None:
    enqueue(store)
    await settle(store, retried(await claim_one(store)), now=at(1))
    await settle(store, advanced(await claim_one(store, now=at(2)), "second", result={"x": [1]}), now=at(3))
    attempt = await claim_one(store, now=at(4))
    assert [(e.attempt, e.settlement, e.code) for e in attempt.history()] == [
        (1, "retry", "HTTP_503"),
        (2, "advance", None),
    ]
    assert attempt.results() == {"first": {"x": [1]}}
    assert list(attempt.history()) == list(await store.history(attempt.id))


async def test_only_the_last_fifty_earlier_rows_are_carried(store: Subject) -> None:
    enqueue(store)
    for seconds in range(51):
        fence = (await claim_one(store, now=at(seconds))).fence
        assert await store.hand_back(ALICE, [fence], now=at(seconds)) == [fence]
    history = (await claim_one(store, now=at(99))).history()
    assert [e.attempt for e in history] == list(range(2, 52))


@pytest.mark.req("G-18")
async def test_a_suspect_is_left_out_of_ordinary_claims(store: Subject) -> None:
    id = await crashed(store)
    assert await claim(store, now=at(1)) == []
    assert (await claim_alone(store, now=at(1))).id == id


@pytest.mark.req("G-18")
async def test_a_suspect_is_the_only_lease_of_its_worker(store: Subject) -> None:
    await crashed(store)
    enqueue(store)
    await claim_one(store, worker=BOB)
    busy = await store.claim_suspect(BOB, [MAIL], lease_seconds=LEASE_SECONDS, now=at(1))
    assert busy == Claimed([], 0)


@pytest.mark.req("G-18")
async def test_suspects_come_one_at_a_time_the_longest_due_first(store: Subject) -> None:
    first = await crashed(store)
    second = await crashed(store, now=at(1))
    attempt = await claim_alone(store, now=at(2))
    assert (attempt.id, attempt.alone) == (first, True)
    again = await store.claim_suspect(BOB, [MAIL], lease_seconds=LEASE_SECONDS, now=at(2))
    assert again == Claimed([], 0)
    await settle(store, delivered(attempt), worker=BOB, now=at(3))
    assert (await claim_alone(store, now=at(3))).id == second


async def test_suspects_of_other_destinations_are_not_ours(store: Subject) -> None:
    await crashed(store)
    other = await store.claim_suspect(BOB, ["bank"], lease_seconds=LEASE_SECONDS, now=at(1))
    assert other == Claimed([], 0)
    assert not await store.suspect_destinations(["bank"], now=at(1))
    assert not await store.suspect_destinations([], now=at(1))


async def test_suspect_destinations_says_where_one_is_due(store: Subject) -> None:
    enqueue(store)
    assert not await store.suspect_destinations([MAIL], now=at(1))
    attempt = await claim_one(store)
    await store.reap(limit=1, worker=ALICE, now=at(5))
    assert attempt.number == 1
    assert not await store.suspect_destinations([MAIL], now=at(4))
    assert await store.suspect_destinations(["bank", MAIL], now=at(5)) == [MAIL]


@pytest.mark.req("G-31")
async def test_destinations_with_suspects_are_named_in_turn(store: Subject) -> None:
    names = ["a", "b", "c", "d"]
    for name in names:
        enqueue(store, destination=name)
        await claim_one(store, destination=name)
    await store.reap(limit=10, worker=ALICE, now=at(1))
    assert await store.suspect_destinations(names, now=at(1)) == names
    assert await store.suspect_destinations(names, after="b", now=at(1)) == ["c", "d", "a", "b"]
    assert await store.suspect_destinations(["a", "c", "d"], after="c", limit=2, now=at(1)) == ["d", "a"]
    assert await store.suspect_destinations(names, after="z", limit=1, now=at(1)) == ["a"]
    assert await store.suspect_destinations(names, limit=0, now=at(1)) == []
