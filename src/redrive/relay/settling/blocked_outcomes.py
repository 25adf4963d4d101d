"""Outcomes that cannot be written yet, because another transaction holds what they need.

An application's transaction that has cancelled a message in flight holds its claim; a producer's transaction holds the
ordering key for which a `record` enqueues. Neither may hold up other outcomes, so these are kept here while their
claims are renewed.

All are tried again every now and then without waiting. A few are waited for besides, each on its own connection: such a
waiter is first when the other transaction ends, before a reaper even if the claim has run out. Waiters take turns, and
destinations share them (`fair_places.py`), so that no endless transaction can keep all of them.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from redrive.message import Fence
from redrive.ports import Clock, Outcome, Record
from redrive.relay.fair_places import FairPlaces
from redrive.relay.tasks import end

AGAIN_SECONDS: Final = (0.02, 0.1, 0.25, 0.5)
WAITED_FOR_AFTER: Final = 2  # tries: most rows are held for a moment only, by a renewal for instance


class Needs(Enum):
    """What another transaction holds: the claim itself, or a lock that the `record` asks for."""

    CLAIM = "claim"
    LOCK = "lock"


WAITERS_MAX: Final = {Needs.CLAIM: 4, Needs.LOCK: 2}  # for one destination; twice as many for all


@dataclass(eq=False)
class Busy:
    """taken: it is being tried or waited for. over: it was written or refused."""

    outcome: Outcome
    record: Record | None
    needs: Needs
    tries: int = 0
    taken: bool = False
    over: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def destination(self) -> str:
        return self.outcome.attempt.destination


class BusyOutcomes:
    """try_again writes what it can without waiting; wait_for waits for one. Both report by `add` or `end`."""

    def __init__(
        self,
        *,
        clock: Clock,
        try_again: Callable[[Sequence[Busy]], Awaitable[None]],
        wait_for: Callable[[Busy], Awaitable[None]],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._clock = clock
        self._try_again = try_again
        self._wait_for = wait_for
        self._on_failure = on_failure
        self._kept: dict[Fence, Busy] = {}
        self._some = asyncio.Event()
        self._counts: Counter[str] = Counter()  # by destination
        self._waiters: dict[asyncio.Task[None], tuple[Needs, str]] = {}
        self._tries: set[asyncio.Task[None]] = set()  # of records, which may hang
        self._places = {needs: FairPlaces(2 * most) for needs, most in WAITERS_MAX.items()}

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, outcome: Outcome, record: Record | None, needs: Needs) -> None:
        """One that is kept already may need something else by now."""
        kept = self._kept.get(outcome.attempt.fence)
        if kept is None:
            kept = self._kept[outcome.attempt.fence] = Busy(outcome, record, needs)
            self._counts[kept.destination] += 1
        kept.needs = needs
        self._some.set()

    def end(self, fences: Iterable[Fence]) -> None:
        for fence in fences if self._kept else ():
            kept = self._kept.pop(fence, None)
            if kept is not None:
                self._counts[kept.destination] -= 1
                kept.over.set()
        if not self._kept:
            self._some.clear()

    def count_of(self, destination: str) -> int:
        return self._counts[destination]

    async def until_written(self, fence: Fence) -> None:
        kept = self._kept.get(fence)
        if kept is not None:
            await kept.over.wait()

    async def run(self) -> None:
        try:
            while True:
                await self._some.wait()
                await self._clock.sleep(self._pause_seconds())
                await self._round()
                self._start_waiters()
        finally:
            await self.stop_waiting()

    async def stop_waiting(self) -> None:
        await end([*self._waiters, *self._tries])

    def left(self, needs: Needs) -> list[Busy]:
        return [kept for kept in self._kept.values() if kept.needs is needs]

    def _pause_seconds(self) -> float:
        tries = min((kept.tries for kept in self._kept.values()), default=0)
        return AGAIN_SECONDS[min(tries, len(AGAIN_SECONDS) - 1)]

    async def _round(self) -> None:
        """A `record` that needs a lock is left to the waiters: trying it costs as much as waiting for the lock."""
        free = [kept for kept in self._kept.values() if not kept.taken]
        for kept in free:
            kept.tries += 1
        claims = [kept for kept in free if kept.needs is Needs.CLAIM]
        for kept in claims:
            kept.taken = True
        for kept in claims:
            if kept.record is not None:
                task = asyncio.create_task(self._try([kept]))
                self._tries.add(task)
                task.add_done_callback(self._tried)
        await self._try([kept for kept in claims if kept.record is None])

    async def _try(self, some: Sequence[Busy]) -> None:
        try:
            await self._try_again(some)
        finally:
            for kept in some:
                kept.taken = False

    def _tried(self, task: asyncio.Task[None]) -> None:
        self._tries.discard(task)
        failure = None if task.cancelled() else task.exception()
        if failure is not None:
            self._on_failure(failure)

    def _start_waiters(self) -> None:
        for needs, places in self._places.items():
            for kept in self.left(needs):
                if kept.taken or kept.tries < WAITED_FOR_AFTER or not places.may_take(kept.destination):
                    continue
                kept.taken = True
                places.take(kept.destination)
                waiter = asyncio.create_task(self._waiting(kept))
                self._waiters[waiter] = (needs, kept.destination)
                waiter.add_done_callback(self._waited)

    async def _waiting(self, kept: Busy) -> None:
        try:
            await self._wait_for(kept)
        finally:
            kept.taken = False
            fence = kept.outcome.attempt.fence
            if self._kept.get(fence) is kept:  # in vain: behind all others
                self._kept[fence] = self._kept.pop(fence)

    def _waited(self, waiter: asyncio.Task[None]) -> None:
        needs, destination = self._waiters.pop(waiter)
        self._places[needs].give_back(destination)
        if waiter.cancelled():
            return
        failure = waiter.exception()
        if failure is not None:
            self._on_failure(failure)
        else:
            self._start_waiters()
