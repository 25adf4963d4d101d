"""The simulated loop keeps asyncio's promises, and processes on it can die, stop and stand still."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from random import Random
from typing import Any

import pytest

from tests.simulation.loop import Process, SimulationLoop

Main = Callable[[Process], Coroutine[Any, Any, None]]
HOUR_SECONDS = 3600.0


@pytest.fixture
def loop() -> Iterator[SimulationLoop]:
    made = SimulationLoop(Random(1))
    yield made
    made.bury()


def run(loop: SimulationLoop, seconds: float) -> None:
    """So long, by the world's clock."""
    loop.in_world(seconds, loop.stop)
    loop.run_forever()


def start(loop: SimulationLoop, main: Main) -> Process:
    return loop.start("process", main)[0]


def test_an_hour_passes_without_waiting(loop: SimulationLoop) -> None:
    woken: list[float] = []

    async def sleep(_: Process) -> None:
        await asyncio.sleep(HOUR_SECONDS)
        woken.append(loop.time())

    start(loop, sleep)
    run(loop, 2 * HOUR_SECONDS)
    assert woken == [HOUR_SECONDS]


def test_callbacks_of_one_process_keep_their_order(loop: SimulationLoop) -> None:
    order: list[int] = []

    async def schedule(_: Process) -> None:
        for number in range(50):
            loop.call_soon(order.append, number)

    start(loop, schedule)
    run(loop, 1)
    assert order == list(range(50))


def turns(seed: int) -> list[str]:
    loop, order = SimulationLoop(Random(seed)), list[str]()

    async def take_turns(process: Process) -> None:
        for _ in range(10):
            order.append(process.name)
            await asyncio.sleep(0)

    for name in ("a", "b", "c"):
        loop.start(name, take_turns)
    run(loop, 1)
    loop.bury()
    return order


def test_which_process_goes_on_is_drawn_from_the_seed() -> None:
    assert turns(1) == turns(1)
    assert turns(1) != turns(2)


def test_a_timeout_is_by_the_simulated_clock(loop: SimulationLoop) -> None:
    ended: list[float] = []

    async def give_up(_: Process) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        ended.append(loop.time())

    start(loop, give_up)
    run(loop, 10)
    assert ended == [5.0]


def test_of_a_process_that_is_killed_no_further_line_runs(loop: SimulationLoop) -> None:
    lines: list[str] = []

    async def work(_: Process) -> None:
        try:
            lines.append("began")
            await asyncio.sleep(5)
        finally:
            if loop.is_running():  # at the very end its memory is freed, and nobody looks any more
                lines.append("ended")

    process = start(loop, work)
    loop.in_world(1, loop.kill, process)
    run(loop, 10)
    assert lines == ["began"]


@pytest.mark.parametrize(("clock_stands_still", "woken_at"), [(False, 20.0), (True, 25.0)])
def test_a_process_that_is_stopped_goes_on_late_one_that_is_suspended_later(
    loop: SimulationLoop, clock_stands_still: bool, woken_at: float
) -> None:
    woken: list[float] = []

    async def sleep(_: Process) -> None:
        await asyncio.sleep(6)
        woken.append(loop.now)

    process = start(loop, sleep)
    loop.in_world(1, lambda: loop.halt(process, 19, clock_stands_still=clock_stands_still))
    run(loop, 30)
    assert woken == [woken_at]
    assert process.behind_seconds == (19 if clock_stands_still else 0)


def test_a_strike_falls_between_two_callbacks(loop: SimulationLoop) -> None:
    steps: list[int] = []

    async def work(_: Process) -> None:
        for number in range(10):
            steps.append(number)
            await asyncio.sleep(0)

    process = start(loop, work)
    process.after_steps(4, lambda: loop.kill(process))
    run(loop, 1)
    assert steps == [0, 1, 2, 3]


def test_a_strike_waits_for_the_event_that_it_was_aimed_at(loop: SimulationLoop) -> None:
    struck: list[str] = []

    async def work(process: Process) -> None:
        process.events.emit("claim.start")
        struck.append("not yet")
        process.events.emit("claim.stop")
        process.events.emit("claim.stop")

    process = start(loop, work)
    process.at_event("claim.stop", lambda: struck.append("now"))
    run(loop, 1)
    assert struck == ["not yet", "now"]


def test_a_strike_finds_whoever_says_it_first_also_one_that_starts_later(loop: SimulationLoop) -> None:
    struck: list[Process] = []

    async def work(process: Process) -> None:
        process.events.emit("claim.stop")

    loop.at_next("claim.stop", struck.append)
    started: list[Process] = []
    loop.in_world(1, lambda: started.append(start(loop, work)))
    loop.in_world(2, lambda: started.append(start(loop, work)))
    run(loop, 3)
    assert struck == started[:1]


def test_what_a_callback_raises_is_not_lost(loop: SimulationLoop) -> None:
    loop.call_soon(lambda: 1 / 0)
    run(loop, 1)
    assert [type(error) for error in loop.errors] == [ZeroDivisionError]
