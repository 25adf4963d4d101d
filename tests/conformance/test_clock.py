"""Jumps of the database's clock: recorded once, and what was dated by the clock as it was is re-dated (G-33)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest

from redrive.message import MessageId
from redrive.ports import Reaped, RelayInfo
from tests.conformance.steps import (
    ALICE,
    BOB,
    LEASE_SECONDS,
    MAIL,
    T0,
    at,
    claim,
    claim_one,
    delivered,
    enqueue,
    retried,
    settle,
)
from tests.conformance.subjects import Subject
from tests.model_store.transitions import Lease, Pending

pytestmark = pytest.mark.req("G-33")

HOUR = 3600.0
BACK = -3 * HOUR  # the clock is set back by three hours, and then says at(BACK) where it would say T0
AFTER = at(BACK)
WINDOW = 5.0


async def set_back(store: Subject, *, now: datetime = AFTER, offset: float = BACK) -> int:
    return await store.clock_jumped(ALICE, era=0, offset_seconds=offset, window_seconds=WINDOW, now=now)


async def redate(store: Subject, *, era: int = 1, now: datetime = AFTER) -> int:
    """A whole pass; how many were re-dated."""
    after, count = None, 0
    while True:
        step = await store.redate(era, after=after, limit=2, now=now)
        count, after = count + step.redated, step.next
        assert step.left_over == 0
        if after is None:
            return count


def due(store: Subject) -> Mapping[MessageId, datetime]:
    return {id: place.due_at for id, place in store.places().items() if isinstance(place, Pending)}


def relay(worker: Any = ALICE) -> RelayInfo:
    return RelayInfo(worker=worker, name=f"relay {worker.int}", host="h", pid=1, version="0", destinations=[MAIL])


# recording


async def test_a_jump_is_recorded_once_however_many_relays_see_it(store: Subject) -> None:
    assert await set_back(store) == 1
    seen_too = BACK + 1.5
    assert await store.clock_jumped(BOB, era=0, offset_seconds=seen_too, window_seconds=WINDOW, now=at(BACK + 2)) == 1
    look = await store.observe_clock(BOB, now=at(BACK + 3))
    assert (look.at, look.era, look.unfinished) == (at(BACK + 3), 1, 1)
    assert [jump.offset_seconds for jump in look.jumps] == [BACK]


async def test_a_second_jump_before_the_first_was_heard_of_is_recorded_as_what_is_left(store: Subject) -> None:
    await set_back(store)
    assert await store.clock_jumped(BOB, era=0, offset_seconds=BACK + HOUR, window_seconds=9, now=at(BACK + HOUR)) == 2
    look = await store.observe_clock(BOB, now=at(BACK + HOUR))
    assert [jump.offset_seconds for jump in look.jumps] == [HOUR, BACK]


async def test_what_is_within_the_tolerance_is_no_jump(store: Subject) -> None:
    assert await store.clock_jumped(ALICE, era=0, offset_seconds=-4.9, window_seconds=WINDOW, now=T0) == 0
    assert await store.clock_jumped(ALICE, era=0, offset_seconds=-5.1, window_seconds=WINDOW, now=T0) == 1


async def test_a_relay_that_stood_still_is_contradicted_by_one_that_saw_the_clock_go_on(store: Subject) -> None:
    await store.register(relay(BOB), now=T0)
    await store.observe_clock(BOB, steady=(at(-60), at(HOUR / 2)), now=at(HOUR / 2 + 5))
    assert await store.clock_jumped(ALICE, era=0, offset_seconds=HOUR, window_seconds=WINDOW, now=at(HOUR)) == 0
    await store.observe_clock(BOB, steady=(at(-60), at(3)), now=at(5))
    assert await store.clock_jumped(ALICE, era=0, offset_seconds=HOUR, window_seconds=WINDOW, now=at(HOUR)) == 1


async def test_what_was_written_in_the_future_tells_of_a_jump_that_no_relay_saw(store: Subject) -> None:
    await store.register(relay(), now=T0)
    assert (await store.observe_clock(BOB, now=T0)).ahead_seconds is None
    assert (await store.observe_clock(BOB, now=at(-4.9))).ahead_seconds is None
    assert (await store.observe_clock(BOB, now=AFTER)).ahead_seconds == pytest.approx(-BACK)
    assert await store.clock_jumped(BOB, era=0, offset_seconds=BACK, window_seconds=None, now=AFTER) == 1
    assert (await store.observe_clock(BOB, now=at(BACK + 1))).ahead_seconds is None
    assert await store.clock_jumped(ALICE, era=0, offset_seconds=BACK, window_seconds=None, now=AFTER) == 1


async def test_a_relay_that_has_just_started_sees_a_jump_by_what_producers_wrote_in_the_future(store: Subject) -> None:
    enqueue(store, now=at(-2 * HOUR))
    enqueue(store)
    assert (await store.observe_clock(BOB, now=at(-4.9))).ahead_seconds is None
    seen_before = (at(BACK - 60), at(BACK - 1))
    assert (await store.observe_clock(BOB, steady=seen_before, now=AFTER)).ahead_seconds is None, "it saw no jump"
    assert (await store.observe_clock(BOB, now=AFTER)).ahead_seconds == pytest.approx(-BACK)
    assert await store.clock_jumped(BOB, era=0, offset_seconds=BACK, window_seconds=None, now=AFTER) == 1
    assert (await store.observe_clock(ALICE, now=at(BACK + 1))).ahead_seconds is None, "the recorded jump explains it"
    await redate(store)
    assert (await store.observe_clock(ALICE, now=at(BACK + 1))).ahead_seconds is None, "also after it was re-dated"
    enqueue(store, now=at(BACK + 2))
    await store.observe_clock(ALICE, now=at(2 * BACK))
    assert (await store.observe_clock(ALICE, now=at(2 * BACK))).ahead_seconds == pytest.approx(-BACK + 2)


# what waits


async def test_what_was_due_before_the_clock_was_set_back_is_due_now(store: Subject) -> None:
    ids = [enqueue(store, now=at(-seconds)) for seconds in (0.5, 1, 2, 3600, 4 * HOUR)]
    scheduled = enqueue(store, now=at(-4 * HOUR), due_at=at(-HOUR))
    assert len(await claim(store, now=AFTER, room=9)) == 1, "all others would wait for three hours"
    await set_back(store)
    assert await redate(store) == 5
    assert set(due(store).values()) == {AFTER}
    assert len(await claim(store, now=AFTER, room=9)) == len(ids) + 1 - 1
    assert scheduled not in due(store)


async def test_a_retry_keeps_its_delay(store: Subject) -> None:
    id = enqueue(store, now=at(-100))
    await settle(store, retried(await claim_one(store, now=at(-60)), delay_seconds=600), now=at(-60))
    await set_back(store)
    assert await redate(store) == 1
    assert due(store) == {id: at(BACK + 540)}
    assert await redate(store) == 0, "re-dated once"
    assert due(store) == {id: at(BACK + 540)}


async def test_a_time_that_a_producer_named_stays_as_it_is(store: Subject) -> None:
    id = enqueue(store, now=at(-100), due_at=at(900))
    await set_back(store)
    assert await redate(store) == 0
    assert due(store) == {id: at(900)}


async def test_what_was_enqueued_after_the_jump_stays_as_it_is(store: Subject) -> None:
    id = enqueue(store, now=at(BACK - 2), due_at=at(BACK + 60))
    await set_back(store)
    later = enqueue(store, now=at(BACK + 1), due_at=at(BACK + 70))
    assert await redate(store, now=at(BACK + 2)) == 0
    assert due(store) == {id: at(BACK + 60), later: at(BACK + 70)}


async def test_without_a_relay_that_saw_it_only_what_was_written_in_the_future_is_re_dated(store: Subject) -> None:
    ahead = enqueue(store, now=at(600))  # after the last word of a relay
    delayed = enqueue(store, now=at(BACK - 60), due_at=at(BACK + 60))
    await store.clock_jumped(ALICE, era=0, offset_seconds=BACK, window_seconds=None, now=AFTER)
    assert await redate(store) == 1
    assert due(store) == {ahead: AFTER, delayed: at(BACK + 60)}


async def test_a_finished_jump_re_dates_nothing_more(store: Subject) -> None:
    enqueue(store)
    await set_back(store)
    await store.redate(1, after=None, limit=9, end=True, now=AFTER)
    assert await redate(store) == 0
    assert (await store.observe_clock(BOB, now=AFTER)).unfinished is None


async def test_a_lane_goes_on_after_the_clock_was_set_back(store: Subject) -> None:
    first, second = (enqueue(store, order_by="k", now=at(-seconds)) for seconds in (5 * HOUR, 4 * HOUR))
    await settle(
        store, delivered(await claim_one(store, now=at(-1))), now=at(-1)
    )  # its lane was released by that clock
    fresh = enqueue(store, order_by="other", now=at(-1))
    assert not [attempt for attempt in await claim(store, now=AFTER) if attempt.id == fresh]
    await set_back(store)
    await redate(store)
    taken = {attempt.id for attempt in await claim(store, now=at(BACK + 0.1))}
    assert fresh in taken
    assert store.state_of(second) == "leased"
    assert store.state_of(first) == "delivered"


async def test_set_forward_nothing_that_waits_is_touched(store: Subject) -> None:
    id = enqueue(store)
    await settle(store, retried(await claim_one(store), delay_seconds=600), now=T0)
    forward = at(3 * HOUR)
    assert await set_back(store, now=forward, offset=3 * HOUR) == 1
    assert (await store.observe_clock(BOB, now=forward)).unfinished is None
    assert await redate(store, now=forward) == 0
    assert due(store) == {id: at(600)}


async def test_what_is_handed_back_after_the_clock_was_set_back_is_due(store: Subject) -> None:
    id = enqueue(store)
    attempt = await claim_one(store)
    await store.hand_back(ALICE, [attempt.fence], now=AFTER)
    assert due(store) == {id: AFTER}


async def test_no_attempt_ends_before_it_began(store: Subject) -> None:
    ids = [enqueue(store) for _ in range(4)]
    one, two, three, four = await claim(store)
    await settle(store, delivered(one), now=AFTER)
    await settle(store, retried(two), now=AFTER)
    await store.hand_back(ALICE, [three.fence], now=AFTER)
    await store.reap(limit=1, worker=ALICE, now=AFTER)
    rows = [row for id in ids for row in await store.history(id)]
    assert len(rows) == 4
    assert all(row.claimed_at is not None and row.completed_at >= row.claimed_at for row in rows)
    assert four.claimed_at == T0


# leases


async def test_no_lease_is_reaped_on_a_clock_that_is_not_where_the_relay_expects_it(store: Subject) -> None:
    enqueue(store)
    await claim_one(store)
    late = at(3 * HOUR)
    assert await store.reap(limit=9, expected=at(7), now=late) == Reaped(0, unconfirmed=True)
    assert await store.reap(limit=9, expected=late - timedelta(seconds=4.9), now=late) == Reaped(1)


async def test_set_forward_every_lease_lasts_a_lease_from_the_jump_on(store: Subject) -> None:
    enqueue(store)
    await claim_one(store)
    await set_back(store, now=at(3 * HOUR), offset=3 * HOUR)
    assert await store.reap(limit=9, now=at(3 * HOUR + LEASE_SECONDS)) == Reaped(0)
    assert await store.reap(limit=9, now=at(3 * HOUR + LEASE_SECONDS + 0.1)) == Reaped(1)


async def test_set_back_a_live_lease_stays_and_a_dead_one_ends_a_lease_later(store: Subject) -> None:
    enqueue(store)
    await claim_one(store)
    assert await store.reap(limit=9, now=AFTER) == Reaped(0)
    (place,) = store.places().values()
    assert isinstance(place, Lease)
    assert place.until == AFTER + timedelta(seconds=LEASE_SECONDS)
    assert await store.reap(limit=9, now=at(BACK + LEASE_SECONDS)) == Reaped(0)
    assert await store.reap(limit=9, now=at(BACK + LEASE_SECONDS + 0.1)) == Reaped(1)


async def test_a_lease_that_ends_a_little_late_is_left_alone(store: Subject) -> None:
    enqueue(store)
    await claim_one(store)
    await store.reap(limit=9, now=at(-4.9))
    (place,) = store.places().values()
    assert isinstance(place, Lease)
    assert place.until == at(LEASE_SECONDS)


# duties, destinations


async def test_a_duty_that_ended_in_the_future_is_due(store: Subject) -> None:
    assert await store.begin_duty("reap", ALICE, every_seconds=15, now=T0)
    await store.end_duty("reap", ALICE, result="done", now=T0)
    assert not await store.begin_duty("reap", BOB, every_seconds=15, now=at(-4.9))
    assert await store.begin_duty("reap", BOB, every_seconds=15, now=AFTER)


async def test_a_duty_that_was_begun_in_the_future_has_no_holder(store: Subject) -> None:
    assert await store.begin_duty("reap", ALICE, every_seconds=15, now=T0)
    assert not await store.begin_duty("reap", BOB, every_seconds=15, now=at(-4.9))
    assert await store.begin_duty("reap", BOB, every_seconds=15, now=AFTER)


async def test_set_back_a_rest_keeps_its_length(store: Subject) -> None:
    await store.pause_until(MAIL, actor="relay", seconds=120, now=at(-20))
    enqueue(store, now=at(-4 * HOUR))
    await set_back(store)
    assert not await claim(store, now=at(BACK + 99))
    assert await claim(store, now=at(BACK + 101))


async def test_set_back_a_breaker_cools_off_for_as_long_as_it_was_to(store: Subject) -> None:
    enqueue(store, now=at(-4 * HOUR))
    opened = await store.open_breaker(
        MAIL, claimed_at=at(-1), code="DOWN", cool_off_seconds=30, cool_off_max_seconds=30, now=T0
    )
    assert opened.opened
    await set_back(store)
    assert not await claim(store, now=at(BACK + 29))
    probe = await claim_one(store, now=at(BACK + 31))
    assert await store.close_breaker(MAIL, claimed_at=probe.claimed_at, now=at(BACK + 32)), "its answer counts"
