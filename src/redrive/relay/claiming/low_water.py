"""Where claims begin to look, past dead rows.

Beside a transaction that is open for long, delivered rows stay in the due index, and every look from its start walks
over them. So once a second the relay walks it once for all claims and remembers the first live row, but only if the
walk was long; elsewhere claims look at everything.

A claim from a mark misses rows that come to wait with an earlier time: committed late, handed back, or dated by a clock
that was set back. The next whole walk finds them, sets the mark back and calls for a claim. No mark passes a row that
waits, so none is missed for longer than a second and a walk. SQL: verbs/low_water.sql; marks are the database's own
times, so no two clocks are compared.
"""

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
    """on_missed: something may wait that claims did not look for."""

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
        while True:
            try:
                await self._walk()
            except TransientFailure:
                self.forget()
                await self._clock.sleep(FULL_EVERY_SECONDS)

    def marked(self, claim_requests: Sequence[ClaimRequest]) -> Sequence[ClaimRequest]:
        if not self.marks:
            return claim_requests
        return [room._replace(since=self.marks.get(Place(room.destination, room.level))) for room in claim_requests]

    async def _walk(self) -> None:
        """One whole walk, then short ones from the marks."""
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
        """After an outage or a jump of the clock: look at everything again, and once for what was missed until now."""
        if self.marks:
            self.marks.clear()
            self._on_missed()
