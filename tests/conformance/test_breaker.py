"""The breaker of a destination over all relays, and the rest that a Retry-After asks for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pytest

from redrive.message import Attempt, WorkerId
from redrive.ports import ClaimRequest, DestinationState, Opened, RelayInfo
from tests.conformance.steps import (
    ACT,
    ALICE,
    BOB,
    LEASE_SECONDS,
    MAIL,
    T0,
    at,
    claim,
    claim_one,
    crashed,
    delivered,
    enqueue,
    settle,
)
from tests.conformance.subjects import Subject

pytestmark = pytest.mark.req("G-25")

COOL_OFF: dict[str, Any] = {"code": "CONNECTION_REFUSED", "cool_off_seconds": 5.0, "cool_off_max_seconds": 300.0}


async def trip(store: Subject, *, now: datetime, claimed_at: datetime | None = None) -> Opened:
    return await store.open_breaker(MAIL, claimed_at=claimed_at or now, **COOL_OFF, now=now)


async def probed(store: Subject, *, now: datetime, worker: WorkerId = ALICE) -> Attempt:
    """The one message that goes, with room for many."""
    attempt = await claim_one(store, now=now, worker=worker)
    assert attempt.probe
    return attempt


async def heard(store: Subject, *, now: datetime) -> DestinationState:
    """What a relay hears about mail."""
    await store.register(RelayInfo(worker=ALICE, name="r", host="h", pid=1, version="1", destinations=[MAIL]), now=now)
    (state,) = await store.heartbeat(ALICE, now=now)
    return state


async def breaker(store: Subject, *, now: datetime) -> str:
    return (await heard(store, now=now)).breaker


def enqueue_many(store: Subject, count: int, *, now: datetime = T0) -> None:
    for _ in range(count):
        enqueue(store, now=now)


# open


async def test_while_it_is_open_nothing_is_claimed_and_nobody_is_asked_for_a_row(store: Subject) -> None:
    enqueue_many(store, 3)
    assert await trip(store, now=at(1)) == Opened(True, at(1), 5.0)
    claim_requests = [ClaimRequest(MAIL, 1, 10)]
    claimed = await store.claim(ALICE, claim_requests, lease_seconds=LEASE_SECONDS, now=at(5.9))
    assert not claimed.attempts
    assert claimed.held_back == {MAIL}
    assert await breaker(store, now=at(5.9)) == "open"


async def test_it_opens_once_for_all_relays(store: Subject) -> None:
    await trip(store, now=at(1))
    assert await trip(store, now=at(3), claimed_at=T0) == Opened(False, at(1), 3.0)


async def test_a_claim_that_ran_beside_the_opening_dates_it_anew_without_a_longer_cool_off(store: Subject) -> None:
    """Its statement began after the opening's and did not see it; relays would take it for one let out on purpose."""
    await trip(store, now=at(1))
    assert await trip(store, now=at(3), claimed_at=at(2)) == Opened(False, at(3), 3.0)
    assert (await heard(store, now=at(3))).breaker_opened_at == at(3)
    enqueue(store)
    probe = await probed(store, now=at(6))
    assert await trip(store, now=at(7), claimed_at=probe.claimed_at) == Opened(True, at(7), 10.0)


async def test_a_suspect_waits_too(store: Subject) -> None:
    await crashed(store)
    await trip(store, now=at(1))
    assert not await store.suspect_destinations([MAIL], now=at(2))
    assert (await store.claim_suspect(BOB, [MAIL], lease_seconds=LEASE_SECONDS, now=at(2))).attempts == []


async def test_a_destination_that_nobody_registered_can_open(store: Subject) -> None:
    opened = await store.open_breaker("later", claimed_at=T0, **COOL_OFF, now=T0)
    assert opened.opened


# one probe


async def test_after_the_cool_off_one_message_goes_and_no_other(store: Subject) -> None:
    enqueue_many(store, 5)
    await trip(store, now=at(1))
    assert await breaker(store, now=at(6)) == "half_open"
    await probed(store, now=at(6))
    assert await claim(store, worker=BOB, now=at(6)) == []
    assert await claim(store, worker=BOB, now=at(29)) == []
    assert await breaker(store, now=at(29)) == "half_open"


@pytest.mark.parametrize("ends", ["handed back", "reaped", "settled without a word"])
async def test_a_probe_that_ends_without_a_word_is_followed_by_another(store: Subject, ends: str) -> None:
    enqueue_many(store, 5)
    await trip(store, now=at(1))
    probe = await probed(store, now=at(6))
    if ends == "handed back":
        await store.hand_back(ALICE, [probe.fence], now=at(7))
    elif ends == "reaped":
        await store.reap(limit=10, now=at(6 + LEASE_SECONDS + 1))
    else:
        await settle(store, delivered(probe), now=at(7))
    now = at(6 + LEASE_SECONDS + 1)
    await probed(store, now=now, worker=BOB)
    assert await claim(store, now=now) == []


async def test_a_probe_that_fails_opens_it_again_for_twice_as_long(store: Subject) -> None:
    enqueue_many(store, 20)
    await trip(store, now=T0)
    moment, seconds = 0.0, [5.0]
    for _ in range(7):
        moment += seconds[-1]
        probe = await probed(store, now=at(moment))
        opened = await trip(store, now=at(moment), claimed_at=probe.claimed_at)
        await store.hand_back(ALICE, [probe.fence], now=at(moment))
        seconds.append(opened.open_seconds)
    assert seconds == [5, 10, 20, 40, 80, 160, 300, 300]


async def test_a_suspect_can_be_the_probe(store: Subject) -> None:
    await crashed(store)
    await trip(store, now=at(1))
    claimed = await store.claim_suspect(BOB, [MAIL], lease_seconds=LEASE_SECONDS, now=at(7))
    assert [attempt.probe for attempt in claimed.attempts] == [True]
    enqueue(store)
    assert await claim(store, now=at(8)) == []


async def test_an_expired_message_is_no_probe(store: Subject) -> None:
    enqueue(store, expires_at=at(2))
    await trip(store, now=at(1))
    assert await claim(store, now=at(7)) == []
    enqueue(store, now=at(7))
    await probed(store, now=at(8))


async def test_what_was_claimed_before_it_opened_has_no_say_about_the_probe(store: Subject) -> None:
    enqueue_many(store, 5)
    old = (await claim(store, room=1))[0]
    await trip(store, now=at(1))
    await probed(store, now=at(7))
    assert not await store.close_breaker(MAIL, claimed_at=old.claimed_at, now=at(8))
    assert not (await trip(store, now=at(8), claimed_at=old.claimed_at)).opened
    assert await breaker(store, now=at(8)) == "half_open"


# the ramp


async def ramping(store: Subject, *, count: int = 100) -> Sequence[Attempt]:
    """A probe was answered at T0 + 7; many wait."""
    enqueue_many(store, count)
    await trip(store, now=at(1))
    probe = await probed(store, now=at(7))
    assert await store.close_breaker(MAIL, claimed_at=probe.claimed_at, now=at(7))
    await settle(store, delivered(probe), now=at(7))
    return [probe]


async def test_after_the_probe_twice_as_many_are_in_flight_every_second(store: Subject) -> None:
    await ramping(store)
    in_flight = 0
    for second in range(6):
        assert await breaker(store, now=at(7 + second)) == "ramping"
        attempts = [a for a in await claim(store, now=at(7.5 + second)) if not a.probe]
        in_flight += len(attempts)
        assert in_flight == 2**second
        assert await claim(store, worker=BOB, now=at(7.9 + second)) == []


async def test_room_in_the_ramp_is_what_is_not_in_flight(store: Subject) -> None:
    await ramping(store)
    first = await claim(store, now=at(9.5))
    assert len(first) == 4
    await settle(store, delivered(first[0]), now=at(9.6))
    assert len(await claim(store, now=at(9.6))) == 1


async def test_when_the_ramp_is_over_it_is_closed_and_everything_goes(store: Subject) -> None:
    await ramping(store, count=60)
    assert await breaker(store, now=at(17)) == "closed"
    assert len(await claim(store, now=at(17))) == 59
    enqueue_many(store, 3, now=at(17))
    assert (await trip(store, now=at(18))).open_seconds == 5, "the cool-off begins anew"


async def test_down_again_in_the_ramp_it_stays_open_for_longer(store: Subject) -> None:
    await ramping(store)
    attempt = (await claim(store, now=at(8)))[0]
    assert await trip(store, now=at(9), claimed_at=attempt.claimed_at) == Opened(True, at(9), 10.0)


async def test_a_second_word_about_one_probe_changes_nothing(store: Subject) -> None:
    (probe,) = await ramping(store)
    assert not await store.close_breaker(MAIL, claimed_at=probe.claimed_at, now=at(9))
    assert len(await claim(store, now=at(9))) == 4


# Retry-After


async def test_a_rest_that_was_asked_for_holds_for_everybody_until_then(store: Subject) -> None:
    enqueue_many(store, 3)
    assert await store.pause_until(MAIL, actor="relay r", seconds=30, now=at(1)) == 30
    assert await heard(store, now=at(11)) == DestinationState(
        name=MAIL,
        paused=True,
        pause_reason="retry_after",
        paused_by="relay r",
        paused_at=at(1),
        pause_seconds=20,
        breaker="ramping",
        breaker_opened_at=at(1),
    )
    assert await claim(store, now=at(30.9)) == []
    assert len(await claim(store, now=at(31))) == 1, "and then it ramps"


async def test_a_rest_is_lengthened_and_never_shortened(store: Subject) -> None:
    await store.pause_until(MAIL, actor="a", seconds=30, now=T0)
    assert await store.pause_until(MAIL, actor="b", seconds=10, now=at(1)) == 29
    assert await store.pause_until(MAIL, actor="c", seconds=60, now=at(2)) == 60
    state = await heard(store, now=at(3))
    assert (state.paused_at, state.paused_by, state.pause_seconds) == (T0, "c", 59)


async def test_after_the_rest_comes_a_ramp(store: Subject) -> None:
    enqueue_many(store, 40)
    await store.pause_until(MAIL, actor="a", seconds=30, now=T0)
    assert len(await claim(store, now=at(30))) == 1
    assert len(await claim(store, now=at(31))) == 1
    assert len(await claim(store, now=at(32))) == 2
    assert len(await claim(store, now=at(40))) == 36


async def test_a_person_s_pause_is_left_alone(store: Subject) -> None:
    await store.pause(MAIL, **ACT, now=T0)
    assert await store.pause_until(MAIL, actor="relay", seconds=30, now=at(1)) is None
    state = await heard(store, now=at(100))
    assert (state.paused, state.paused_by, state.pause_seconds, state.breaker) == (True, "ada", None, "closed")


async def test_a_person_may_pause_and_resume_over_a_rest(store: Subject) -> None:
    enqueue_many(store, 3)
    await store.pause_until(MAIL, actor="relay", seconds=30, now=T0)
    assert await store.resume(MAIL, **ACT, now=at(1))
    assert not await store.resume(MAIL, **ACT, now=at(1))
    await store.pause_until(MAIL, actor="relay", seconds=30, now=at(2))
    assert await store.pause(MAIL, **ACT, now=at(3))
    assert await claim(store, now=at(100)) == []
    assert await store.resume(MAIL, **ACT, now=at(100))


async def test_a_rest_that_a_person_ends_is_followed_by_its_ramp_at_once(store: Subject) -> None:
    enqueue_many(store, 40)
    await store.pause_until(MAIL, actor="relay", seconds=120, now=T0)
    assert await store.resume(MAIL, **ACT, now=at(1))
    assert len(await claim(store, now=at(1))) == 1
    assert len(await claim(store, now=at(2))) == 1
    assert len(await claim(store, now=at(20))) == 38


async def test_a_rest_that_is_over_is_no_pause(store: Subject) -> None:
    await store.pause_until(MAIL, actor="relay", seconds=30, now=T0)
    assert not await store.resume(MAIL, **ACT, now=at(31))
    assert await store.pause_until(MAIL, actor="relay", seconds=5, now=at(40)) == 5
    assert (await heard(store, now=at(41))).paused_at == at(40)


async def test_an_open_breaker_stays_open_through_a_rest(store: Subject) -> None:
    enqueue_many(store, 3)
    await trip(store, now=at(1))
    await store.pause_until(MAIL, actor="relay", seconds=1, now=at(2))
    assert await claim(store, now=at(4)) == []
    await probed(store, now=at(6))


async def test_a_probe_that_is_asked_to_rest_was_answered(store: Subject) -> None:
    enqueue_many(store, 30)
    await trip(store, now=at(1))
    probe = await probed(store, now=at(6))
    await store.pause_until(MAIL, actor="relay", seconds=10, now=at(7))
    await settle(store, delivered(probe), now=at(7))
    assert await claim(store, now=at(16)) == []
    assert len(await claim(store, now=at(17))) == 1
    assert len(await claim(store, now=at(18))) == 1


# an operator's test


async def test_half_open_lets_one_message_through_at_once(store: Subject) -> None:
    enqueue_many(store, 3)
    await trip(store, now=at(1))
    assert await store.half_open(MAIL, **ACT, now=at(2)) == "done"
    probe = await probed(store, now=at(2))
    assert await store.half_open(MAIL, **ACT, now=at(3)) == "probing"
    assert await claim(store, now=at(3)) == []
    assert await store.close_breaker(MAIL, claimed_at=probe.claimed_at, now=at(3))
    assert await store.half_open(MAIL, **ACT, now=at(3)) == "flows"


async def test_half_open_ends_a_rest_with_one_message(store: Subject) -> None:
    enqueue_many(store, 3)
    await store.pause_until(MAIL, actor="relay", seconds=100, now=at(1))
    assert await store.half_open(MAIL, **ACT, now=at(2)) == "done"
    probe = await probed(store, now=at(3))
    assert await claim(store, now=at(3)) == []
    assert await store.close_breaker(MAIL, claimed_at=probe.claimed_at, now=at(4))


async def test_half_open_is_refused_with_the_reason(store: Subject) -> None:
    assert await store.half_open(MAIL, **ACT, now=T0) == "not_found"
    await trip(store, now=at(1))
    assert await store.half_open(MAIL, **ACT, now=at(2)) == "empty"
    enqueue(store, due_at=at(100))
    assert await store.half_open(MAIL, **ACT, now=at(2)) == "empty"
    enqueue(store)
    await store.pause(MAIL, **ACT, now=at(2))
    assert await store.half_open(MAIL, **ACT, now=at(3)) == "paused"
    await store.resume(MAIL, **ACT, now=at(3))
    assert await store.half_open(MAIL, **ACT, now=at(3)) == "done"
    assert await breaker(store, now=at(3)) == "half_open"


async def test_a_failed_test_opens_it_for_longer(store: Subject) -> None:
    enqueue_many(store, 3)
    await trip(store, now=at(1))
    await store.half_open(MAIL, **ACT, now=at(2))
    probe = await probed(store, now=at(2))
    assert (await trip(store, now=at(3), claimed_at=probe.claimed_at)).open_seconds == 10
