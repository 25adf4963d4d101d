"""How a relay notices that the database's clock jumped, on a model store and a clock that is moved by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest

from redrive.events import Events
from redrive.message import NewMessage, WorkerId
from redrive.ports import ClockLook, Redated, RelayInfo
from redrive.relay.clock_watch import ClockWatch
from tests.model_store.model import ModelStore

pytestmark = pytest.mark.req("G-33")

ALICE, BOB = WorkerId(UUID(int=1)), WorkerId(UUID(int=2))
HOUR = 3600.0
BEAT = 5.0


class World(ModelStore):
    """A database whose clock goes on with everything else, and can be set. trip_seconds: how long a look takes."""

    def __init__(self) -> None:
        super().__init__()
        self.monotonic = 1000.0
        self.trip_seconds = 0.0
        self.finished = asyncio.Event()

    def pass_by(self, seconds: float) -> None:
        self.monotonic += seconds
        self.advance(seconds)

    async def observe_clock(self, worker: WorkerId, **values: Any) -> ClockLook:
        self.pass_by(self.trip_seconds)
        look = await super().observe_clock(worker, **values)
        self.pass_by(self.trip_seconds)
        return look

    async def redate(self, era: int, **values: Any) -> Redated:
        redated = await super().redate(era, **values)
        if values.get("end"):
            self.finished.set()
        return redated


class Relay:
    """One relay's watch, and what it said."""

    def __init__(self, world: World, worker: WorkerId, elapsed: Callable[[], float] | None = None) -> None:
        self.said: list[float] = []
        self.heard = 0
        events = Events()
        events.subscribe(lambda _, values: self.said.append(values["offset_seconds"]), "relay.clock_jumped")
        self.watch = ClockWatch(
            world, worker, elapsed=elapsed or (lambda: world.monotonic), confirm_seconds=0.9 * BEAT, events=events
        )
        self.watch.on_jump = self._jumped

    def _jumped(self) -> None:
        self.heard += 1


async def registered(world: World, worker: WorkerId) -> Relay:
    info = RelayInfo(worker=worker, name=f"r{worker.int}", host="h", pid=1, version="0", destinations=["mail"])
    await world.register(info)
    relay = Relay(world, worker)
    await relay.watch.look()
    return relay


async def beat(world: World, *relays: Relay, seconds: float = BEAT) -> None:
    world.pass_by(seconds)
    for relay in relays:
        await relay.watch.look()


@pytest.mark.parametrize("offset", [-3 * HOUR, 3 * HOUR, -6.0, 6.0])
async def test_a_jump_is_noticed_by_the_next_look(offset: float) -> None:
    world = World()
    relay = await registered(world, ALICE)
    await beat(world, relay, relay)
    assert relay.said == []
    world.advance(offset)
    await beat(world, relay)
    assert relay.said == [pytest.approx(offset)]
    assert relay.heard == 1
    await beat(world, relay, relay)
    assert len(world.jumps) == 1


async def test_two_relays_that_see_the_same_jump_record_it_once() -> None:
    world = World()
    alice, bob = [await registered(world, worker) for worker in (ALICE, BOB)]
    world.advance(-3 * HOUR)
    await beat(world, alice, bob)
    await beat(world, bob, alice)
    assert len(world.jumps) == 1
    assert alice.said == bob.said == [pytest.approx(-3 * HOUR)]


async def test_a_slow_round_trip_is_no_jump() -> None:
    world = World()
    relay = await registered(world, ALICE)
    for trip in (20.0, 0.0, 40.0):
        world.trip_seconds = trip
        await beat(world, relay)
    assert world.jumps == []


async def test_a_clock_that_is_corrected_slowly_does_not_jump_however_far_it_gets() -> None:
    world = World()
    relay = await registered(world, ALICE)
    for _ in range(100):
        world.advance(4.0)
        await beat(world, relay)
    assert world.jumps == []


async def test_a_relay_that_was_suspended_is_contradicted_by_another() -> None:
    world = World()
    slept = 0.0
    awake = await registered(world, BOB)
    sleeper = Relay(world, ALICE, lambda: world.monotonic - slept)
    await sleeper.watch.look()
    for _ in range(60):
        await beat(world, awake)
    slept = 60 * BEAT
    await sleeper.watch.look()
    assert world.jumps == []
    await beat(world, sleeper, awake)
    assert (world.jumps, sleeper.watch.distrusted) == ([], False)


async def test_a_relay_that_starts_after_the_clock_was_set_back_learns_it_from_what_was_written() -> None:
    world = World()
    await registered(world, ALICE)  # and is gone
    world.advance(-3 * HOUR)
    relay = Relay(world, BOB)
    await relay.watch.look()
    assert relay.said == [pytest.approx(-3 * HOUR)]
    assert [jump.offset_seconds for jump in relay.watch.jumps] == [pytest.approx(-3 * HOUR)]


async def test_what_is_claimed_on_a_clock_that_jumped_is_distrusted_until_the_next_look() -> None:
    world = World()
    relay = await registered(world, ALICE)
    now = world.monotonic
    assert relay.watch.trusts(world.time, sent=now, received=now)
    world.advance(3 * HOUR)
    trusted = [relay.watch.trusts(world.time, sent=now, received=now), not relay.watch.distrusted]
    await relay.watch.look()
    trusted += [not relay.watch.distrusted, relay.watch.trusts(world.time, sent=now, received=now)]
    assert trusted == [False, False, True, True]


async def test_the_reaper_waits_for_a_second_look_and_after_a_jump_for_the_next() -> None:
    world = World()
    relay = await registered(world, ALICE)
    waiting = asyncio.ensure_future(relay.watch.expected_time())
    await asyncio.sleep(0)
    assert not waiting.done()
    await beat(world, relay)
    assert await waiting == world.time
    world.pass_by(2.0)
    assert await relay.watch.expected_time() == world.time
    world.advance(3 * HOUR)
    expected: datetime = await relay.watch.expected_time()
    assert (world.time - expected).total_seconds() == pytest.approx(3 * HOUR)
    relay.watch.trusts(world.time, sent=world.monotonic, received=world.monotonic)
    waiting = asyncio.ensure_future(relay.watch.expected_time())
    await asyncio.sleep(0)
    assert not waiting.done()
    await relay.watch.look()
    assert await waiting == world.time


async def test_what_waits_is_re_dated_and_the_jump_is_finished() -> None:
    world = World()
    relay = await registered(world, ALICE)
    id = world.enqueue(NewMessage("mail", {}), now=None).id
    world.advance(-3 * HOUR)
    redating = asyncio.ensure_future(relay.watch.redating())
    await beat(world, relay)
    await world.finished.wait()
    redating.cancel()
    assert relay.heard == 2, "of the jump, and of what became due"
    assert (await world.observe_clock(BOB)).unfinished is None
    place = world.places()[id]
    assert getattr(place, "due_at", None) == world.time
