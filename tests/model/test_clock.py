"""ManualClock: time that moves when it is told to, and wakes sleepers in order."""

from __future__ import annotations

import asyncio

import pytest

from redrive.ports import Clock
from redrive.testing import ManualClock


async def settle_down() -> None:
    """Lets every task that can run do so."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_sleeper_wakes_when_its_time_has_come_and_not_before() -> None:
    clock = ManualClock(100.0)
    sleeping = asyncio.create_task(clock.sleep(10))
    await settle_down()
    clock.advance(9.5)
    await settle_down()
    assert (sleeping.done(), clock.sleepers, clock.next_wake) == (False, 1, 110.0)
    clock.advance(0.5)
    await sleeping
    assert (clock.monotonic(), clock.sleepers, clock.next_wake) == (110.0, 0, None)


async def test_sleepers_wake_in_the_order_of_their_time_then_of_lying_down() -> None:
    clock, woken = ManualClock(), list[str]()

    async def sleep(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(name)

    tasks = [asyncio.create_task(sleep(name, s)) for name, s in (("late", 9), ("b", 5), ("c", 5), ("a", 1))]
    await settle_down()
    clock.advance(9)
    await asyncio.gather(*tasks)
    assert woken == ["a", "b", "c", "late"]


async def test_no_time_at_all_only_gives_up_control() -> None:
    clock: Clock = ManualClock()
    await clock.sleep(0)
    await clock.sleep(-1)
    assert clock.monotonic() == 0


async def test_a_cancelled_sleeper_is_no_sleeper() -> None:
    clock = ManualClock()
    sleeping = asyncio.create_task(clock.sleep(10))
    await settle_down()
    sleeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleeping
    assert (clock.sleepers, clock.next_wake) == (0, None)
    clock.advance(10)


def test_a_monotonic_clock_does_not_go_back() -> None:
    with pytest.raises(ValueError, match="does not go back"):
        ManualClock().advance(-1)
