"""Messages that came back from a crash are run apart (G-18): one at a time, each the only lease of its worker id, in a
child process of its own, so that whatever brought the last process down brings down nothing else.

The parent looks whether there is a suspect, starts a child, and waits for it. A child that ends by itself has nothing
left to do; one that dies has left at most one lease, which the parent reaps at once: it knows that the worker is dead.
One that dies and leaves none (the app cannot be imported, there is no memory) is not started again for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from random import Random

from redrive.events import Events
from redrive.message import WorkerId
from redrive.ports import Clock, Store, TransientFailure
from redrive.relay.loop import new_worker

LOOK_EVERY_SECONDS = 1.0
AFTER_CRASH_SECONDS = 0.2
AFTER_FALSE_START_SECONDS = 5.0

# Run all suspects under this worker id, and say how it ended: 0 is well, anything else a crash.
RunAlone = Callable[[WorkerId], Awaitable[int]]


class Suspects:
    """One relay's suspects: at most one child at a time."""

    def __init__(
        self,
        store: Store,
        destinations: Sequence[str],
        run_alone: RunAlone,
        *,
        clock: Clock,
        random: Random,
        events: Events,
    ) -> None:
        self._store = store
        self._destinations = destinations
        self._run_alone = run_alone
        self._clock = clock
        self._random = random
        self._events = events

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                pause_seconds = await self.run_once()
            except TransientFailure:
                pause_seconds = LOOK_EVERY_SECONDS
            await self._clock.sleep(pause_seconds)

    async def run_once(self) -> float:
        """Run the suspects, if there are any. Returns for how many seconds to wait then."""
        with self._events.step("has_suspect") as added:
            added["found"] = found = await self._store.has_suspect(self._destinations)
        if not found:
            return LOOK_EVERY_SECONDS
        worker = new_worker(self._random)
        self._events.emit("suspects.spawned", worker=worker)
        try:
            code = await self._run_alone(worker)
        except asyncio.CancelledError:
            with suppress(TransientFailure):
                await self._bury(worker)  # stopped: normally it has left nothing behind
            raise
        self._events.emit("suspects.ended", worker=worker, code=code)
        if code == 0:
            return LOOK_EVERY_SECONDS
        return AFTER_CRASH_SECONDS if await self._bury(worker) else AFTER_FALSE_START_SECONDS

    async def _bury(self, worker: WorkerId) -> int:
        """The child is dead, so its lease need not run out first. Returns how many it left."""
        with self._events.step("reap", worker=worker) as added:
            added["requeued"] = requeued = (await self._store.reap(limit=10, worker=worker)).requeued
        with self._events.step("deregister", worker=worker):
            await self._store.deregister(worker)
        return requeued
