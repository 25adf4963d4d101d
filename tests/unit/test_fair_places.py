"""Places that destinations share: one that hangs leaves half to the next, and nobody is forgotten (G-31)."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from redrive.relay.fair_places import FairPlaces, FairQueue

pytestmark = pytest.mark.req("G-31")


@pytest.mark.parametrize(
    ("places", "expected"), [(8, [4, 2, 1, 1, 0]), (4, [2, 1, 1, 0, 0]), (2, [1, 1, 0, 0, 0]), (1, [1, 0, 0, 0, 0])]
)
def test_each_destination_leaves_half_of_what_there_is_to_the_next(places: int, expected: list[int]) -> None:
    shared = FairPlaces(places)
    taken = []
    for destination in "abcde":
        count = 0
        while shared.may_take(destination):
            shared.take(destination)
            count += 1
        taken.append(count)
    assert taken == expected
    shared.give_back("a")
    assert shared.may_take("e")


async def hold(queue: FairQueue, destination: str, begun: list[str], end: asyncio.Event) -> None:
    async with queue.place(destination):
        begun.append(destination)
        await end.wait()


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_all_that_wait_have_their_turn_and_destinations_one_after_the_other() -> None:
    queue, begun, end = FairQueue(4), list[str](), asyncio.Event()
    async with AsyncExitStack() as held:
        for destination in ("x", "y", "z"):
            await held.enter_async_context(queue.place(destination))
        await held.enter_async_context(queue.place("w"))
        tasks = [asyncio.create_task(hold(queue, one, begun, end)) for one in "aaaabc"]
        await turns()
        assert begun == []
    await turns()
    assert begun == ["a", "b", "c", "a"][: len(begun)]
    assert set(begun) == {"a", "b", "c"}
    end.set()
    await asyncio.gather(*tasks)
    assert sorted(begun) == list("aaaabc")


@pytest.mark.parametrize("had_its_place", [False, True])
async def test_one_that_is_cancelled_while_it_waits_keeps_no_place(had_its_place: bool) -> None:
    queue, begun, end = FairQueue(1), list[str](), asyncio.Event()
    async with queue.place("a"):
        waiting = asyncio.create_task(hold(queue, "b", begun, end))
        await turns()
        if not had_its_place:
            waiting.cancel()
            await turns()
    if had_its_place:
        waiting.cancel()  # at the moment at which it is given its place, and before it has begun
    await asyncio.wait([waiting])
    assert begun == []
    async with asyncio.timeout(1), queue.place("c"):
        pass
