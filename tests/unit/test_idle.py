"""When producers are asked to ring, and when to stop (G-08)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count

import pytest

from redrive.relay.wakeup.doorbell import WINDOW_SECONDS, Debounce
from redrive.relay.wakeup.idle import (
    BUSY_AFTER_FULL,
    BUSY_AFTER_MESSAGES,
    BUSY_WITHIN_SECONDS,
    DRY_BELOW,
    MARGIN_SECONDS,
    SPARE_SECONDS,
    Asked,
    Idleness,
)
from redrive.testing.clock import ManualClock

pytestmark = pytest.mark.req("G-08")

SHOP = frozenset({"shop"})
BOTH = frozenset({"shop", "mail"})


def dry() -> Idleness:
    idleness = Idleness()
    idleness.found_nothing(0.0)
    idleness.found_nothing(0.01)
    assert idleness.is_dry
    return idleness


def moments(per_second: float, *, after: float = 1.0) -> Iterator[float]:
    """When messages come that are so many a second."""
    return (after + number / per_second for number in count())


def test_one_empty_look_is_not_enough_where_much_comes() -> None:
    idleness, came = Idleness(), moments(2 * DRY_BELOW)
    for _ in range(500):
        idleness.found_nothing(next(came))
        for _ in range(3):
            idleness.found(1, next(came), full=False)
    assert not idleness.is_dry


def test_one_empty_look_is_enough_where_little_comes() -> None:
    """Polled every 10 ms, a hundred a second are found one at a time: there are never two empty looks in a row."""
    idleness, came = Idleness(), moments(2 * 100)
    idleness.found_nothing(next(came))
    idleness.found(1, next(came), full=False)
    idleness.found_nothing(next(came))
    assert idleness.is_dry


def test_after_a_lot_one_empty_look_is_not_enough() -> None:
    idleness = Idleness()
    idleness.found_nothing(0.0)
    idleness.found(20_000, 1.0, full=True)
    idleness.found_nothing(2.0)
    assert not idleness.is_dry
    idleness.found_nothing(2.01)
    assert idleness.is_dry


def test_messages_now_and_then_leave_it_dry() -> None:
    idleness, came = dry(), moments(100)
    for _ in range(10 * BUSY_AFTER_MESSAGES):
        idleness.found(1, next(came), full=True)
        idleness.found_nothing(next(came))
    assert idleness.is_dry


def test_a_hundred_a_second_without_an_empty_look_leave_it_dry() -> None:
    """Each was rung for, and found at once."""
    idleness, came = dry(), moments(100)
    for _ in range(10 * BUSY_AFTER_MESSAGES):
        idleness.found(1, next(came), full=False)
    assert idleness.is_dry


def test_a_hundred_messages_at_once_without_an_empty_look_make_it_busy_however_small_the_claims() -> None:
    idleness, came = dry(), moments(2 * BUSY_AFTER_MESSAGES / BUSY_WITHIN_SECONDS)
    for _ in range(BUSY_AFTER_MESSAGES - 1):
        idleness.found(1, next(came), full=False)
    assert idleness.is_dry
    idleness.found(1, next(came), full=False)
    assert not idleness.is_dry


def test_full_claims_in_a_row_make_it_busy_however_slow_they_are_worked_off() -> None:
    idleness, came = dry(), moments(1)
    for _ in range(BUSY_AFTER_FULL - 1):
        idleness.found(1, next(came), full=True)
    assert idleness.is_dry
    idleness.found(1, next(came), full=True)
    assert not idleness.is_dry


def test_what_is_asked_lasts_from_look_to_look_and_is_not_written_each_time() -> None:
    poll_seconds = 0.25
    asked, writes, looks = Asked(poll_seconds), 0, 400
    for look in range(looks):
        now = look * poll_seconds
        if asked.is_outdated(SHOP, now):
            asked.asked(SHOP, now)
            writes += 1
        assert asked._until > now + poll_seconds
    assert writes <= looks * poll_seconds / (MARGIN_SECONDS - SPARE_SECONDS) + 1


def test_only_what_is_new_is_looked_at_once_more() -> None:
    asked = Asked(0.25)
    assert asked.asked(SHOP, 100.0) == SHOP
    assert asked.is_outdated(BOTH, 100.1)
    assert asked.asked(BOTH, 100.1) == {"mail"}
    assert not asked.is_outdated(BOTH, 100.2)
    assert asked.asked(SHOP, 100.3) == frozenset()
    assert not asked.is_for("mail")


def test_after_its_time_everything_is_new() -> None:
    asked = Asked(0.25)
    asked.asked(SHOP, 100.0)
    later = 100.0 + asked.seconds
    assert asked.is_outdated(SHOP, later)
    assert asked.asked(SHOP, later) == SHOP


def test_what_may_be_lost_is_asked_again() -> None:
    asked = Asked(0.25)
    asked.asked(SHOP, 100.0)
    asked.forget()
    assert asked.is_outdated(SHOP, 100.1)
    assert asked.asked(SHOP, 100.1) == SHOP


class Rings:
    """A debounce on a clock that stands still, and how often it woke."""

    def __init__(self) -> None:
        self.clock = ManualClock(start=100.0)
        self.wakes = 0
        self.debounce = Debounce(self._wake, self.clock)

    def _wake(self) -> None:
        self.wakes += 1

    async def pass_time(self, seconds: float) -> None:
        await asyncio.sleep(0)
        self.clock.advance(seconds)
        await asyncio.sleep(0)
        await asyncio.sleep(0)


async def test_the_first_ring_wakes_at_once_and_those_of_the_window_are_one_wake_at_its_end() -> None:
    rings = Rings()
    rings.debounce.ring()
    assert rings.wakes == 1
    rings.debounce.looked(found=False)
    for _ in range(5):
        rings.debounce.ring()
    assert rings.wakes == 1
    await rings.pass_time(WINDOW_SECONDS)
    assert rings.wakes == 2
    await rings.pass_time(WINDOW_SECONDS)
    assert rings.wakes == 2


async def test_rings_that_lead_to_work_all_wake_at_once() -> None:
    rings = Rings()
    for wakes in range(1, 20):
        rings.debounce.ring()
        assert rings.wakes == wakes
        rings.debounce.looked(found=True)
        rings.debounce.looked(found=False)  # there was no more
        await rings.pass_time(WINDOW_SECONDS / 3)


async def test_a_look_that_no_ring_led_to_opens_no_window() -> None:
    rings = Rings()
    rings.debounce.looked(found=False)
    rings.debounce.ring()
    assert rings.wakes == 1


async def test_after_the_window_a_ring_wakes_at_once_again() -> None:
    rings = Rings()
    rings.debounce.ring()
    rings.debounce.looked(found=False)
    await rings.pass_time(WINDOW_SECONDS)
    rings.debounce.ring()
    assert rings.wakes == 2
