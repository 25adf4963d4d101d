"""Runs messages that came back from a crash in a child process, one at a time per destination (G-18).

Each is the only lease of its worker id, so that what brought the last process down brings down nothing else. The parent
starts a child for each destination with a due suspect, a few at once, destinations by turns. A child serves one
destination for some seconds; the parent ends one that does not end. A child that dies leaves at most one lease, which
the parent reaps at once. One that dies without a lease (the app cannot be imported, no memory) is not started again for
a while. A child whose outcome waits for an application's transaction gives up its place: another child may serve its
destination.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Final

from redrive.events import Events
from redrive.message import WorkerId
from redrive.ports import Clock, Store, TransientFailure
from redrive.relay.context import new_worker
from redrive.relay.crash.child_events import WAITING
from redrive.relay.tasks import end

CHILDREN_MAX: Final = 4
WAITING_MAX: Final = 4  # children that only wait to write an outcome; further ones keep their places
LOOK_EVERY_SECONDS: Final = 1.0
AFTER_CRASH_SECONDS: Final = 0.2
AFTER_FALSE_START_SECONDS: Final = 5.0
START_SECONDS_MAX: Final = 60.0  # to import the app and to connect; its turn begins after that
OVERDUE: Final = -9  # the code of a child that was ended because it did not end by itself

# Run suspects of a destination under this worker id, and return how it ended: 0 is well, anything else a crash. Calls
# the third argument with STARTED when it looks for the first one, and with WAITING when all that is left to do is to
# write an outcome that another transaction keeps from being written.
RunSuspects = Callable[[WorkerId, str, Callable[[str], None]], Awaitable[int]]


class Suspects:
    """destinations: each with the seconds after which its child is ended, once it has started."""

    def __init__(
        self,
        store: Store,
        destinations: Mapping[str, float],
        run_suspects: RunSuspects,
        *,
        clock: Clock,
        random: Random,
        events: Events,
    ) -> None:
        self._store = store
        self._destinations = destinations
        self._run_suspects = run_suspects
        self._clock = clock
        self._random = random
        self._events = events
        self._serving: set[str] = set()  # destinations whose child has a place
        self._children: set[asyncio.Task[None]] = set()
        self._waiting = 0
        self._rests_until: dict[str, float] = {}
        self._last_turn = ""
        self._changed = asyncio.Event()
        self._failure: BaseException | None = None

    async def run(self) -> None:
        """A cancellation lets the running suspects end."""
        try:
            while True:
                self._changed.clear()
                with suppress(TransientFailure):  # looked for again soon
                    await self.start_children()
                await self._until_changed()
                if self._failure is not None:
                    raise self._failure
        finally:
            await end(list(self._children))

    async def start_children(self) -> None:
        """One for each destination that has a suspect and no child, as far as there are places."""
        free = CHILDREN_MAX - len(self._serving)
        now = self._clock.monotonic()
        idle = [
            name for name in self._destinations if name not in self._serving and self._rests_until.get(name, now) <= now
        ]
        if free <= 0 or not idle:
            return
        with self._events.step("suspect_destinations") as added:
            found = await self._store.suspect_destinations(idle, after=self._last_turn, limit=free)
            added["count"] = len(found)
        for name in found:
            self._last_turn = name
            child = asyncio.create_task(self._serve(name))
            self._serving.add(name)
            self._children.add(child)
            child.add_done_callback(self._note_failure)

    async def _until_changed(self) -> None:
        now = self._clock.monotonic()
        rests = [until - now for until in self._rests_until.values() if until > now]
        look = asyncio.create_task(self._clock.sleep(min([LOOK_EVERY_SECONDS, *rests])))
        changed = asyncio.create_task(self._changed.wait())
        try:
            await asyncio.wait([look, changed], return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end([look, changed])

    async def _serve(self, destination: str) -> None:
        """One child, from its start until its leases are reaped."""
        worker = new_worker(self._random)
        place = _Place(destination)
        self._events.emit("suspects.spawned", worker=worker, destination=destination)
        place.limit = asyncio.create_task(self._clock.sleep(START_SECONDS_MAX))
        running = asyncio.ensure_future(self._run_suspects(worker, destination, partial(self._child_said, place)))
        try:
            await self._until_over(running, place)
            code = await self._code(running)
            self._events.emit("suspects.ended", worker=worker, destination=destination, code=code)
            rest_seconds = await self._rest_seconds(worker, code)
        except asyncio.CancelledError:
            await end([running])
            with suppress(TransientFailure):
                await self._reap(worker)  # stopped: normally it has left nothing behind
            raise
        finally:
            await end([place.limit])
            self._waiting -= place.given_up
        if not place.given_up:
            self._rests_until[destination] = self._clock.monotonic() + rest_seconds
            self._free(destination)

    async def _until_over(self, running: asyncio.Future[int], place: _Place) -> None:
        """Until the child has ended or has had its time. One that gave up its place has as long as it takes."""
        while not running.done():
            limit = place.limit
            either: list[asyncio.Future[Any]] = [running, limit]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if place.given_up:
                await asyncio.wait([running])
            elif limit is place.limit and limit.done():
                return

    async def _code(self, running: asyncio.Future[int]) -> int:
        """Ends the child if it is still there."""
        if running.done():
            return running.result()
        running.cancel()
        await asyncio.wait([running])
        return OVERDUE if running.cancelled() else running.result()

    async def _rest_seconds(self, worker: WorkerId, code: int) -> float:
        """Before the next child of its destination."""
        if code == 0:
            return LOOK_EVERY_SECONDS
        try:
            reaped = await self._reap(worker)
        except TransientFailure:  # its lease runs out
            return LOOK_EVERY_SECONDS
        return AFTER_CRASH_SECONDS if reaped or code == OVERDUE else AFTER_FALSE_START_SECONDS

    async def _reap(self, worker: WorkerId) -> int:
        """The child is dead, so its lease need not run out first. Returns how many it left."""
        with self._events.step("reap", worker=worker) as added:
            added["requeued"] = requeued = (await self._store.reap(limit=10, worker=worker)).requeued
        with self._events.step("deregister", worker=worker):
            await self._store.deregister(worker)
        return requeued

    def _child_said(self, place: _Place, told: str) -> None:
        if told == WAITING:
            self._give_up(place)
        elif not place.given_up:  # a machine under load may need long to start it: its turn begins now
            place.limit.cancel()
            place.limit = asyncio.create_task(self._clock.sleep(self._destinations[place.destination]))

    def _give_up(self, place: _Place) -> None:
        """This child runs nothing more; what it waits for may take long."""
        if not place.given_up and self._waiting < WAITING_MAX:
            place.given_up = True
            self._waiting += 1
            place.limit.cancel()
            self._free(place.destination)

    def _free(self, destination: str) -> None:
        self._serving.discard(destination)
        self._changed.set()

    def _note_failure(self, child: asyncio.Task[None]) -> None:
        self._children.discard(child)
        if not child.cancelled() and child.exception() is not None:
            self._failure = child.exception()
            self._changed.set()


@dataclass(eq=False)
class _Place:
    """limit: ends when the child has had its time. given_up: the child only waits to write an outcome."""

    destination: str
    given_up: bool = False
    limit: asyncio.Task[None] = field(init=False)
