"""Limits over all relays: how many messages of a destination may be in flight, and how many may go out in a second."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pytest

from redrive.message import LEVELS, Attempt, Priority, WorkerId
from redrive.ports import Claimed, ClaimRequest, HandOver, RelayInfo
from tests.conformance.steps import ALICE, BOB, LEASE_SECONDS, MAIL, T0, at, claim, crashed, delivered, enqueue, settle
from tests.conformance.subjects import Subject

pytestmark = pytest.mark.req("G-25")


async def register(
    store: Subject,
    *,
    worker: WorkerId = ALICE,
    rate: float | None = None,
    in_flight: int | None = None,
    now: datetime = T0,
) -> None:
    """A relay for mail and fax; only mail has limits."""
    await store.register(
        RelayInfo(
            worker=worker,
            name="relay",
            host="here",
            pid=1,
            version="1",
            destinations=[MAIL, "fax"],
            rates={} if rate is None else {MAIL: rate},
            concurrency_limits={} if in_flight is None else {MAIL: in_flight},
        ),
        now=now,
    )


async def claim_all(
    store: Subject, *, now: datetime = T0, room: int = 100, worker: WorkerId = ALICE, levels: Sequence[int] = LEVELS
) -> Claimed:
    claim_requests = [ClaimRequest(MAIL, level, room) for level in levels]
    return await store.claim(worker, claim_requests, lease_seconds=LEASE_SECONDS, now=now)


def levels(attempts: Sequence[Attempt]) -> dict[int, int]:
    return dict(Counter(attempt.level for attempt in attempts))


# global concurrency


async def test_no_more_are_in_flight_than_the_limit_over_all_relays(store: Subject) -> None:
    await register(store, in_flight=5)
    for _ in range(12):
        enqueue(store)
    first = await claim(store, worker=ALICE, room=3)
    second = await claim(store, worker=BOB)
    assert (len(first), len(second)) == (3, 2)
    assert await claim(store, worker=BOB) == []
    await settle(store, delivered(first[0]), worker=ALICE)
    await store.hand_back(BOB, [second[0].fence], now=T0)
    assert len(await claim(store, worker=BOB)) == 2


async def test_what_was_in_flight_before_the_limit_counts_too(store: Subject) -> None:
    await register(store)
    for _ in range(6):
        enqueue(store)
    before = await claim(store, room=4)
    await register(store, worker=BOB, in_flight=5, now=at(1))
    assert len(await claim(store, now=at(1))) == 1
    await settle(store, delivered(before[0]), now=at(2))
    assert len(await claim(store, now=at(2))) == 1


async def test_the_limit_is_what_the_last_relay_said(store: Subject) -> None:
    await register(store, in_flight=1)
    for _ in range(5):
        enqueue(store)
    assert len(await claim(store)) == 1
    await register(store, worker=BOB, in_flight=3, now=at(1))
    assert len(await claim(store, now=at(1))) == 2
    await register(store, now=at(2))
    assert len(await claim(store, now=at(2))) == 2


async def test_a_limit_of_one_destination_is_none_of_another(store: Subject) -> None:
    await register(store, in_flight=1)
    for _ in range(4):
        enqueue(store)
        enqueue(store, destination="fax")
    claim_requests = [ClaimRequest(MAIL, 1, 10), ClaimRequest("fax", 1, 10)]
    claimed = await store.claim(ALICE, claim_requests, lease_seconds=LEASE_SECONDS, now=T0)
    assert Counter(a.destination for a in claimed.attempts) == {MAIL: 1, "fax": 4}
    assert claimed.held_back == {MAIL}


async def test_a_suspect_needs_room_like_everybody(store: Subject) -> None:
    id = await crashed(store)
    await register(store, in_flight=1)
    enqueue(store)
    (other,) = await claim(store, now=at(1))
    assert not await store.suspect_destinations([MAIL], now=at(1))
    assert (await store.claim_suspect(BOB, [MAIL], lease_seconds=LEASE_SECONDS, now=at(1))).attempts == []
    await settle(store, delivered(other), now=at(2))
    assert await store.suspect_destinations([MAIL], now=at(2))
    claimed = await store.claim_suspect(BOB, [MAIL], lease_seconds=LEASE_SECONDS, now=at(2))
    assert [attempt.id for attempt in claimed.attempts] == [id]
    enqueue(store)
    assert await claim(store, now=at(3)) == []


# rate


async def test_after_a_quiet_time_a_rate_lets_one_second_s_worth_go_and_no_more_in_any_second(store: Subject) -> None:
    await register(store, rate=10)
    for _ in range(50):
        enqueue(store)
    assert len(await claim(store)) == 10
    for seconds in (0, 0.05, 0.1, 0.6, 0.999):
        assert await claim(store, now=at(seconds)) == []
    assert len(await claim(store, now=at(1.03))) == 10
    assert len(await claim(store, now=at(30), room=3)) == 3, "no more than a second's worth is saved up"
    assert len(await claim(store, now=at(30.5))) == 7
    assert await claim(store, now=at(30.9)) == []
    assert len(await claim(store, now=at(31.03))) == 3
    assert await claim(store, now=at(31.4)) == []
    assert len(await claim(store, now=at(31.53))) == 7


async def test_in_no_second_more_leave_than_the_rate_however_often_it_is_asked(store: Subject) -> None:
    """Also a rate that is no whole number: in the long run it is kept, in one second it is rounded up."""
    await register(store, rate=7.5)
    for _ in range(60):
        enqueue(store)
    times = [step / 20 for step in range(120)]
    claims = [seconds for seconds in times for _ in await claim(store, now=at(seconds))]
    assert max(sum(first <= other < first + 1 for other in claims) for first in claims) == 8
    assert 6 * 7.5 * 0.85 <= len(claims) <= 6 * 7.5 + 7.5


async def test_a_high_rate_is_kept_by_many_small_claims(store: Subject) -> None:
    await register(store, rate=200)
    for _ in range(450):
        enqueue(store)
    times = [step / 100 for step in range(200)]
    claims = [seconds for seconds in times for _ in await claim(store, now=at(seconds), room=4)]
    assert max(sum(first <= other < first + 1 for other in claims) for first in set(claims)) <= 200
    assert len(claims) >= 0.95 * 2 * 200


async def test_a_rate_below_one_lets_one_go_at_a_time(store: Subject) -> None:
    await register(store, rate=0.5)
    for _ in range(3):
        enqueue(store)
    assert [len(await claim(store, now=at(s))) for s in (0, 1, 1.9, 2, 3, 4)] == [1, 0, 0, 1, 0, 1]


async def test_the_rate_is_one_for_all_relays(store: Subject) -> None:
    await register(store, rate=4)
    for _ in range(20):
        enqueue(store)
    taken = [len(await claim(store, worker=worker, now=at(s / 4))) for s in range(9) for worker in (ALICE, BOB)]
    assert sum(taken) == 4 + 4, "the second four a second after the first"


async def test_only_what_was_taken_is_charged(store: Subject) -> None:
    await register(store, rate=10)
    for _ in range(3):
        enqueue(store)
    assert len(await claim(store)) == 3
    for _ in range(20):
        enqueue(store)
    assert len(await claim(store)) == 7


async def test_what_has_expired_costs_nothing(store: Subject) -> None:
    await register(store, rate=10)
    for _ in range(6):
        enqueue(store, expires_at=at(1))
    claimed = await claim_all(store, now=at(2))
    assert (len(claimed.attempts), claimed.expired) == (0, 6)
    for _ in range(20):
        enqueue(store, now=at(2))
    assert len(await claim(store, now=at(2))) == 10


async def test_a_clock_that_is_set_back_stops_no_rate(store: Subject) -> None:
    await register(store, rate=10)
    for _ in range(40):
        enqueue(store)
    assert len(await claim(store, now=at(3600))) == 10
    assert len(await claim(store, now=at(1))) == 10


async def test_claims_that_overtake_each_other_at_the_lock_save_up_nothing(store: Subject) -> None:
    await register(store, rate=0.5)
    for _ in range(5):
        enqueue(store)
    times = (0.1, 0.05, 2.0, 2.1, 2.05, 4.05, 4.1)
    assert [len(await claim(store, now=at(seconds))) for seconds in times] == [1, 0, 0, 1, 0, 0, 1]


async def test_the_tighter_of_rate_and_concurrency_holds(store: Subject) -> None:
    await register(store, rate=10, in_flight=4)
    for _ in range(40):
        enqueue(store)
    first = await claim(store)
    assert len(first) == 4
    for attempt in first:
        await settle(store, delivered(attempt))
    assert len(await claim(store)) == 4
    assert (await claim_all(store, now=at(0.1))).held_back == {MAIL}


async def test_whoever_is_held_back_is_told_so_and_nobody_else(store: Subject) -> None:
    await register(store, rate=2)
    assert (await claim_all(store)).held_back == frozenset()
    for _ in range(2):
        enqueue(store)
    assert (await claim_all(store)).held_back == frozenset(), "there was no more"
    enqueue(store)
    assert (await claim_all(store)).held_back == {MAIL}
    await store.pause(MAIL, actor="ada", reason="maintenance", now=T0)
    assert (await claim_all(store)).held_back == frozenset()


# the levels share


async def test_levels_share_a_limit_by_turns(store: Subject) -> None:
    await register(store, in_flight=20)
    for priority in Priority:
        for _ in range(20):
            enqueue(store, priority=priority)
    assert levels((await claim_all(store)).attempts) == {0: 12, 1: 6, 2: 2}


async def test_no_level_starves_where_one_message_goes_at_a_time(store: Subject) -> None:
    await register(store, rate=1)
    for priority in Priority:
        for _ in range(40):
            enqueue(store, priority=priority)
    taken = [(await claim_all(store, now=at(1.1 * turn))).attempts for turn in range(30)]
    assert [len(attempts) for attempts in taken] == [1] * 30
    assert levels([attempt for attempts in taken for attempt in attempts]) == {0: 18, 1: 9, 2: 3}


@pytest.mark.parametrize("priority", Priority)
async def test_what_the_other_levels_have_no_use_for_goes_to_the_one_that_has(
    store: Subject, priority: Priority
) -> None:
    await register(store, in_flight=7)
    for _ in range(10):
        enqueue(store, priority=priority)
    assert levels((await claim_all(store)).attempts) == {priority.level: 7}


async def test_a_level_that_was_not_asked_for_gets_nothing(store: Subject) -> None:
    await register(store, in_flight=7)
    for priority in Priority:
        for _ in range(5):
            enqueue(store, priority=priority)
    claimed = await claim_all(store, levels=[Priority.LOW.level], room=3)
    assert levels(claimed.attempts) == {2: 3}


# lanes


async def test_lanes_are_within_the_limits_too(store: Subject) -> None:
    await register(store, in_flight=3)
    for lane in range(6):
        enqueue(store, order_by=f"key-{lane}")
        enqueue(store)
    first = await claim(store)
    assert len(first) == 3
    assert {attempt.order_by is None for attempt in first} == {True, False}
    assert await claim(store) == []


@pytest.mark.req("G-07")
@pytest.mark.parametrize("limits", [{"rate": 100.0}, {"in_flight": 100}])
async def test_a_limited_destination_hands_no_lane_over(store: Subject, limits: dict[str, Any]) -> None:
    await register(store, **limits)
    for _ in range(3):
        enqueue(store, order_by="key")
    (first,) = await claim(store)
    over = HandOver({first.id}, LEASE_SECONDS)
    settled = await store.settle(ALICE, [delivered(first)], hand_over=over, now=T0)
    assert settled.handed_over == ()
    await register(store, now=at(1))
    (second,) = await claim(store, now=at(1))
    settled = await store.settle(ALICE, [delivered(second)], hand_over=HandOver({second.id}, LEASE_SECONDS), now=at(1))
    assert [attempt.sequence for attempt in settled.handed_over] == [3]
