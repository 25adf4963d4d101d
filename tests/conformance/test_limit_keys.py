"""A limit key: breaker, rest, pause and rate of a part of a destination (G-31)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from redrive.ports import LimitKeyState, Opened, PutOff
from tests.conformance.steps import ACT, ALICE, BOB, MAIL, T0, at, claim, claim_one, enqueue, enqueue_lane
from tests.conformance.subjects import Subject
from tests.model_store.transitions import Pending

pytestmark = [pytest.mark.req("G-31"), pytest.mark.req("G-25")]

HOST = "hooks.example:443"
OTHER = "other.example:443"
COOL_OFF: dict[str, Any] = {"code": "CONNECTION_REFUSED", "cool_off_seconds": 5.0, "cool_off_max_seconds": 300.0}


async def keys(store: Subject, *, now: datetime) -> dict[str, LimitKeyState]:
    return {state.key: state for state in await store.limit_keys([MAIL], limit=100, now=now)}


async def trip(store: Subject, *, now: datetime, claimed_at: datetime | None = None) -> Opened:
    return await store.open_key(MAIL, HOST, claimed_at=claimed_at or now, **COOL_OFF, now=now)


async def test_a_plain_key_is_not_told(store: Subject) -> None:
    assert await keys(store, now=T0) == {}


async def test_a_key_rests_by_itself_and_then_ramps(store: Subject) -> None:
    assert await store.rest_key(MAIL, HOST, actor="relay", seconds=30, now=T0) == 30
    resting = await keys(store, now=at(1))
    assert list(resting) == [HOST]
    assert (resting[HOST].paused, resting[HOST].pause_reason, resting[HOST].pause_seconds) == (True, "retry_after", 29)
    after = (await keys(store, now=at(32)))[HOST]
    assert (after.paused, after.breaker, after.ramp_seconds, after.breaker_seconds) == (False, "ramping", 2, 8)
    assert await keys(store, now=at(41)) == {}


async def test_a_rest_is_lengthened_never_shortened(store: Subject) -> None:
    await store.rest_key(MAIL, HOST, actor="a", seconds=30, now=T0)
    assert await store.rest_key(MAIL, HOST, actor="b", seconds=10, now=at(1)) == 29
    assert await store.rest_key(MAIL, HOST, actor="c", seconds=60, now=at(2)) == 60


async def test_a_person_s_pause_is_left_alone_by_a_rest(store: Subject) -> None:
    assert await store.pause_key(MAIL, HOST, **ACT, now=T0)
    assert not await store.pause_key(MAIL, HOST, **ACT, now=at(1))
    assert await store.rest_key(MAIL, HOST, actor="relay", seconds=30, now=at(1)) is None
    state = (await keys(store, now=at(100)))[HOST]
    assert (state.paused, state.paused_by, state.pause_seconds) == (True, "ada", None)
    assert await store.resume_key(MAIL, HOST, **ACT, now=at(101))
    assert not await store.resume_key(MAIL, HOST, **ACT, now=at(102))
    assert not await store.resume_key(MAIL, OTHER, **ACT, now=at(102))


async def test_an_open_key_lets_one_probe_out_and_ramps_when_that_is_answered(store: Subject) -> None:
    assert await trip(store, now=T0) == (True, T0, 5.0)
    assert not (await trip(store, now=at(1))).opened
    first, second = enqueue(store), enqueue(store)
    await claim(store, now=at(2))
    assert (await keys(store, now=at(2)))[HOST].breaker == "open"
    assert await store.probe_key(MAIL, HOST, first, now=at(2)) == "wait"
    assert await store.probe_key(MAIL, OTHER, first, now=at(2)) == "flows"
    assert await store.probe_key(MAIL, HOST, first, now=at(6)) == "go"
    assert await store.probe_key(MAIL, HOST, second, now=at(6)) == "wait", "one at a time"
    assert not await store.close_key(MAIL, HOST, claimed_at=T0, now=at(7)), "claimed before it opened"
    assert await store.close_key(MAIL, HOST, claimed_at=at(2), now=at(7))
    assert (await keys(store, now=at(8)))[HOST].breaker == "ramping"
    assert await store.probe_key(MAIL, HOST, second, now=at(8)) == "flows"
    assert await keys(store, now=at(17)) == {}


async def test_a_probe_whose_claim_has_ended_is_followed_by_another(store: Subject) -> None:
    await trip(store, now=T0)
    first, second = enqueue(store), enqueue(store)
    attempts = {attempt.id: attempt for attempt in await claim(store, now=at(6))}
    assert await store.probe_key(MAIL, HOST, first, now=at(6)) == "go"
    await store.hand_back(ALICE, [attempts[first].fence], now=at(7))
    assert await store.probe_key(MAIL, HOST, second, now=at(7)) == "go"


async def test_trips_in_a_row_double_the_cool_off(store: Subject) -> None:
    id = enqueue(store)
    await trip(store, now=T0)
    attempt = await claim_one(store, now=at(6))
    assert await store.probe_key(MAIL, HOST, id, now=at(6)) == "go"
    assert (await trip(store, now=at(7), claimed_at=attempt.claimed_at)).open_seconds == 10


async def test_what_is_put_off_waits_unspent_and_is_brought_forward_when_its_key_is_resumed(store: Subject) -> None:
    id, neighbour = enqueue(store), enqueue(store)
    await store.pause_key(MAIL, HOST, **ACT, now=T0)
    fences = {attempt.id: attempt.fence for attempt in await claim(store)}
    put_off = {fences[id]: PutOff(3600, HOST)}
    back = await store.hand_back(ALICE, list(fences.values()), put_off=put_off, now=at(1))
    assert set(back) == set(fences.values())
    waiting = store.place_of(id)
    assert isinstance(waiting, Pending)
    assert (waiting.due_at, waiting.spent, waiting.limit_key) == (at(3601), 0, HOST)
    assert [attempt.id for attempt in await claim(store, worker=BOB, now=at(2))] == [neighbour]
    await store.resume_key(MAIL, HOST, **ACT, now=at(3))
    assert (await claim_one(store, worker=BOB, now=at(4))).id == id


async def test_what_is_put_off_for_as_long_as_its_key_is_held_asks_the_database(store: Subject) -> None:
    """A relay that has not heard of a resume puts nothing off for an hour."""
    held = {"rests": 60.0, "paused": 3600.0, "open": 5.0, "flows": None}
    await store.rest_key(MAIL, "rests", actor="relay", seconds=60, now=T0)
    await store.pause_key(MAIL, "paused", **ACT, now=T0)
    await store.open_key(MAIL, "open", claimed_at=T0, **COOL_OFF, now=T0)
    ids = {enqueue(store): key for key in held}
    put_off = {attempt.fence: PutOff(None, ids[attempt.id]) for attempt in await claim(store)}
    await store.hand_back(ALICE, list(put_off), put_off=put_off, now=T0)
    waiting = {key: store.place_of(id) for id, key in ids.items()}
    for key, seconds in held.items():
        place = waiting[key]
        assert isinstance(place, Pending)
        assert (place.due_at, place.limit_key) == ((T0, None) if seconds is None else (at(seconds), key))


async def test_a_lane_whose_head_is_put_off_keeps_its_order(store: Subject) -> None:
    first, _ = enqueue_lane(store, 2)
    head = await claim_one(store)
    assert head.id == first
    await store.hand_back(ALICE, [head.fence], put_off={head.fence: PutOff(60, HOST)}, now=at(1))
    assert await claim(store, now=at(59)) == []
    head = await claim_one(store, now=at(62))
    assert head.id == first
    await store.hand_back(ALICE, [head.fence], put_off={head.fence: PutOff(600, HOST)}, now=at(63))
    await store.pause_key(MAIL, HOST, **ACT, now=at(64))
    await store.resume_key(MAIL, HOST, **ACT, now=at(65))
    assert (await claim_one(store, now=at(66))).id == first


async def test_turns_of_a_rate_follow_one_by_one_over_all_relays(store: Subject) -> None:
    async def book(key: str, count: int, now: datetime) -> tuple[float, int]:
        booked = await store.book_key(MAIL, key, count=count, rate=10.0, most_seconds=0.5, now=now)
        return round(booked.seconds, 3), booked.turns

    assert await book(HOST, 3, T0) == (0.0, 3)
    assert await book(HOST, 10, T0) == (0.3, 3)
    assert await book(HOST, 10, T0) == (0.6, 0)
    assert await book(OTHER, 1, T0) == (0.0, 1)
    assert await book(HOST, 1, at(5)) == (0.0, 1), "what was not used is not saved up"
