"""Where claims begin to look: only where the way was long, and never without a whole look every second (DESIGN §6)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from redrive.events import Events
from redrive.ports import ClaimRequest, LowWaterMark, Place, TransientFailure
from redrive.relay.claiming.low_water import FULL_EVERY_SECONDS, LONG_SECONDS, PLACES_AT_ONCE, STEPS, LowWater
from redrive.testing.clock import ManualClock

pytestmark = pytest.mark.req("G-08")

START = datetime(2040, 1, 1, tzinfo=UTC)
SHOP = Place("shop", 1)


class Store:
    """Notes what is asked; each answer is a millisecond later than the one before."""

    def __init__(self, *slow: Place) -> None:
        self.slow = slow
        self.asked: list[dict[Place, datetime | None]] = []
        self.is_away = False
        self.behind: datetime | None = None  # something waits there, and only a whole look sees it

    async def low_water(self, places: Sequence[tuple[Place, datetime | None]]) -> Sequence[LowWaterMark]:
        if self.is_away:
            raise TransientFailure
        self.asked.append(dict(places))
        since = START + timedelta(milliseconds=len(self.asked))
        if self.behind is not None and any(given is None for _, given in places):
            since = self.behind
        return [LowWaterMark(place, since, LONG_SECONDS if place in self.slow else 0.0) for place, _ in places]


class Rig:
    def __init__(self, *slow: Place, destinations: Sequence[str] = ("shop", "mail")) -> None:
        self.store = Store(*slow)
        self.clock = ManualClock()
        store: Any = self.store
        self.calls = 0
        self.low_water = LowWater(store, destinations, clock=self.clock, events=Events(), on_missed=self._call)

    def _call(self) -> None:
        self.calls += 1

    async def pass_seconds(self, seconds: float) -> None:
        for _ in range(round(seconds * STEPS / FULL_EVERY_SECONDS)):
            self.clock.advance(FULL_EVERY_SECONDS / STEPS)
            for _ in range(5):
                await asyncio.sleep(0)


@asynccontextmanager
async def running(rig: Rig) -> AsyncIterator[Rig]:
    task = asyncio.create_task(rig.low_water.run())
    for _ in range(5):
        await asyncio.sleep(0)
    try:
        yield rig
    finally:
        task.cancel()


async def test_where_no_walk_is_long_claims_look_at_everything() -> None:
    async with running(Rig()) as rig:
        await rig.pass_seconds(3.1)
        assert len(rig.store.asked) == 4
        assert rig.low_water.marks == {}
        claim_requests = [ClaimRequest("shop", 1, 5)]
        assert rig.low_water.marked(claim_requests) == claim_requests


async def test_a_long_walk_gives_its_place_a_mark_and_no_other() -> None:
    async with running(Rig(SHOP)) as rig:
        mark = START + timedelta(milliseconds=1)
        assert rig.low_water.marks == {SHOP: mark}
        asked = [ClaimRequest("shop", 0, 5), ClaimRequest("shop", 1, 5), ClaimRequest("mail", 1, 5)]
        assert [room.since for room in rig.low_water.marked(asked)] == [None, mark, None]


async def test_between_two_whole_looks_the_mark_is_moved_on_from_where_it_is() -> None:
    async with running(Rig(SHOP)) as rig:
        await rig.pass_seconds(2)
        whole = [index for index, asked in enumerate(rig.store.asked) if asked[SHOP] is None]
        assert whole == [0, STEPS + 1, 2 * (STEPS + 1)]
        assert all(
            asked == {SHOP: START + timedelta(milliseconds=n)}
            for n, asked in enumerate(rig.store.asked)
            if n and n not in whole
        )


async def test_a_mark_is_given_up_when_the_walk_is_short_again() -> None:
    async with running(Rig(SHOP)) as rig:
        rig.store.slow = ()
        await rig.pass_seconds(1)
        assert rig.low_water.marks == {}


async def test_marks_are_forgotten_while_the_database_is_away() -> None:
    async with running(Rig(SHOP)) as rig:
        rig.store.is_away = True
        await rig.pass_seconds(1)
        assert rig.low_water.marks == {}
        rig.store.is_away = False
        await rig.pass_seconds(2)
        assert SHOP in rig.low_water.marks


async def test_of_very_many_places_some_are_looked_at_each_time_and_the_marked_ones_always() -> None:
    names = [f"d{number}" for number in range(PLACES_AT_ONCE)]
    marked = Place(names[0], 0)
    async with running(Rig(marked, destinations=names)) as rig:
        await rig.pass_seconds(3)
        whole = [asked for asked in rig.store.asked if None in asked.values()]
        assert all(marked in asked for asked in whole)
        assert all(len(asked) <= PLACES_AT_ONCE + 1 for asked in whole)
        assert {place for asked in whole for place in asked} == {
            Place(name, level) for name in names for level in (0, 1, 2)
        }


async def test_what_a_whole_look_finds_behind_a_mark_calls_for_a_claim() -> None:
    async with running(Rig(SHOP)) as rig:
        await rig.pass_seconds(2)
        assert rig.calls == 0
        rig.store.behind = START
        await rig.pass_seconds(1)
        assert rig.low_water.marks[SHOP] == START
        assert rig.calls == 1


async def test_what_is_found_behind_a_mark_that_is_given_up_calls_for_a_claim_too() -> None:
    async with running(Rig(SHOP)) as rig:
        rig.store.behind = START
        rig.store.slow = ()
        await rig.pass_seconds(1)
        assert rig.low_water.marks == {}
        assert rig.calls == 1


async def test_marks_that_are_forgotten_call_for_a_claim_once() -> None:
    async with running(Rig(SHOP)) as rig:
        rig.store.is_away = True
        await rig.pass_seconds(3)
        assert rig.calls == 1
