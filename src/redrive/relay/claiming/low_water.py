"""Where claims begin to look, while dead rows lie before it.

Beside a transaction that is open for long, the rows that were delivered meanwhile stay in the due index, and a look
that begins at its start walks over all of them. So every second the relay takes one such walk for its claims, and
remembers where the first live row was. Only where the walk was long is that used: everywhere else claims look at
everything, and miss nothing.

What claims miss beside a mark: whatever comes to wait with an earlier time than the mark, be it committed late, handed
back, or dated by a clock that was set back. The next whole walk finds it, however it came there, sets the mark back to
it, and calls for a claim. No mark goes past a row that waits, so none is missed for longer than a second and a walk.

SQL: verbs/low_water.sql. The marks are the database's own times, given back to it: no clock is compared with another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from itertools import cycle, islice
from typing import Final

from redrive.events import Events
from redrive.message import LEVELS
from redrive.ports import ClaimRequest, Clock, LowWaterMark, Place, Store, TransientFailure

FULL_EVERY_SECONDS: Final = 1.0
STEPS: Final = 10  # the marks are moved on so often between two full walks
LONG_SECONDS: Final = 0.001  # a few thousand dead rows
PLACES_AT_ONCE: Final = 60  # that have no mark; one that has is looked at every time


class LowWater:
    """Marks of one relay's destinations and levels. on_missed: something may wait that claims did not look for."""

    def __init__(
        self,
        store: Store,
        destinations: Iterable[str],
        *,
        clock: Clock,
        events: Events,
        on_missed: Callable[[], None],
    ) -> None:
        self.marks: dict[Place, datetime] = {}
        self._store = store
        self._clock = clock
        self._events = events
        self._on_missed = on_missed
        places = [Place(name, level) for name in destinations for level in LEVELS]
        self._turn = cycle(places)
        self._turn_length = min(len(places), PLACES_AT_ONCE)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self._walk()
            except TransientFailure:
                self.forget()
                await self._clock.sleep(FULL_EVERY_SECONDS)

    def marked(self, claim_requests: Sequence[ClaimRequest]) -> Sequence[ClaimRequest]:
        """The same rooms, with where to begin."""
        if not self.marks:
            return claim_requests
        return [room._replace(since=self.marks.get(Place(room.destination, room.level))) for room in claim_requests]

    async def _walk(self) -> None:
        """One long walk, and short ones from the marks until the next is due."""
        whole = dict.fromkeys([*self.marks, *islice(self._turn, self._turn_length)])
        self._keep(await self._look([(place, None) for place in whole]))
        steps = STEPS if self.marks else 1
        for _ in range(steps):
            await self._clock.sleep(FULL_EVERY_SECONDS / steps)
            if self.marks:
                moved = await self._look(list(self.marks.items()))
                self.marks = {mark.place: mark.since for mark in moved}

    async def _look(self, places: Sequence[tuple[Place, datetime | None]]) -> Sequence[LowWaterMark]:
        with self._events.step("low_water", count=len(places)):
            return await self._store.low_water(places)

    def _keep(self, found: Sequence[LowWaterMark]) -> None:
        missed = any(mark.since < self.marks.get(mark.place, mark.since) for mark in found)
        for mark in found:
            if mark.walked_seconds >= LONG_SECONDS:
                self.marks[mark.place] = mark.since
            else:
                self.marks.pop(mark.place, None)
        if missed:
            self._on_missed()

    def forget(self) -> None:
        """Claims look at everything again, and once more for what they missed until now.

        After an outage, and after a jump of the database's clock, by which the marks were dated.
        """
        if self.marks:
            self.marks.clear()
            self._on_missed()
