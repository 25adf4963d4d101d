"""Watches the database's clock for jumps (G-33).

Between two looks the database's clock moves as far as the relay's monotonic clock, give or take the round trips. Where
it does not, it was set: the relay records the jump (verbs/clock.sql) and has what waits re-dated. NTP's slow
corrections stay far below the tolerance. Until a jump is recorded, the relay claims nothing and the reaper waits. A
relay that has just started has nothing to compare with: its reaper waits for one more look, so that older relays come
first. docs/explanation/clock.md has the reasoning.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from redrive.events import Events
from redrive.message import MessageId, WorkerId
from redrive.policy import ClockJump
from redrive.ports import ClockLook, Store, TransientFailure

TOLERANCE_SECONDS: Final = 5.0  # as clock_tolerance() in clock.sql
REDATE_STEP: Final = 1000
SETTLE_SECONDS: Final = 30.0  # between two passes that only wait for old transactions to end


class _Seen(NamedTuple):
    """What the database's clock said, between two moments of ours."""

    at: datetime
    sent: float
    received: float


class ClockWatch:
    """elapsed: seconds by a clock of this machine that cannot be set. confirm_seconds: how long an observation lasts
    before the reaper may act. on_jump: a jump was recorded, by this relay or another."""

    def __init__(
        self,
        store: Store,
        worker: WorkerId,
        *,
        elapsed: Callable[[], float],
        confirm_seconds: float,
        events: Events,
    ) -> None:
        self.distrusted = False  # something was dated where the clock cannot be; the next look says what it is
        self.jumps: Sequence[ClockJump] = ()
        self.on_jump: Callable[[], None] = lambda: None
        self._store = store
        self._worker = worker
        self.elapsed = elapsed
        self._confirm_seconds = confirm_seconds
        self._events = events
        self._first: _Seen | None = None
        self._last: _Seen | None = None
        self._era = 0
        self._steady_since: datetime | None = None
        self._confirmed = asyncio.Event()
        self._unfinished: int | None = None
        self._redate_asked = asyncio.Event()
        self._redate_at = 0.0

    def trusts(self, at: datetime, *, sent: float, received: float) -> bool:
        """Whether a time that the database wrote between these two moments of ours is where its clock should be."""
        if self._offset(_Seen(at, sent, received)):
            self._distrust()
        return not self.distrusted

    async def expected_time(self) -> datetime:
        """What the clock should say now; waits until that is confirmed."""
        await self._confirmed.wait()
        assert self._last is not None
        return self._last.at + timedelta(seconds=self.elapsed() - (self._last.sent + self._last.received) / 2)

    async def look(self) -> None:
        """Raises TransientFailure; a distrusted clock stays distrusted then."""
        look, seen = await self._observe()
        if self._first is None:
            self._era = look.era
        offset = self._offset(seen)
        if offset or look.ahead_seconds is not None:
            self._distrust()
            await self._record(look, offset, seen)
            self._steady_since = None
            self._last = None
            look, seen = await self._observe()
        self._accept(look, seen)

    def _offset(self, seen: _Seen) -> float:
        """Seconds by which the clock is wrong; 0 within the tolerance, or without a last look."""
        if self._last is None:
            return 0.0
        moved = (seen.at - self._last.at).total_seconds()
        least, most = seen.sent - self._last.received, seen.received - self._last.sent
        offset = min(moved - least, 0.0) or max(moved - most, 0.0)
        return offset if abs(offset) > TOLERANCE_SECONDS else 0.0

    async def _observe(self) -> tuple[ClockLook, _Seen]:
        steady = None
        if self._steady_since is not None and self._last is not None:
            steady = (self._steady_since, self._last.at)
        sent = self.elapsed()
        with self._events.step("observe_clock", worker=self._worker):
            look = await self._store.observe_clock(self._worker, steady=steady)
        return look, _Seen(look.at, sent, self.elapsed())

    async def _record(self, look: ClockLook, offset: float, seen: _Seen) -> None:
        """Rows dated in the future tell of a jump that no relay has seen."""
        with self._events.step("clock_jumped", worker=self._worker):
            if offset:
                assert self._last is not None
                window = seen.received - self._last.sent
                await self._store.clock_jumped(
                    self._worker, era=self._era, offset_seconds=offset, window_seconds=window
                )
            else:
                ahead = look.ahead_seconds or 0.0
                await self._store.clock_jumped(self._worker, era=look.era, offset_seconds=-ahead, window_seconds=None)

    def _accept(self, look: ClockLook, seen: _Seen) -> None:
        news = look.era - self._era
        self._first = self._first or seen
        self._last = seen
        self._steady_since = self._steady_since or seen.at
        self._era = look.era
        self.jumps = look.jumps
        self.distrusted = False
        if seen.received - self._first.received >= self._confirm_seconds:
            self._confirmed.set()
        for jump in reversed(look.jumps[:news]):
            self._events.emit("relay.clock_jumped", worker=self._worker, offset_seconds=jump.offset_seconds)
        self._unfinished = look.unfinished
        if look.unfinished is not None and self.elapsed() >= self._redate_at:
            self._redate_asked.set()
        if news:
            self.on_jump()

    def _distrust(self) -> None:
        self.distrusted = True
        self._confirmed.clear()

    async def redating(self) -> None:
        while True:
            await self._redate_asked.wait()
            self._redate_asked.clear()
            if self._unfinished is not None:
                with suppress(TransientFailure):
                    await self._redate(self._unfinished)

    async def _redate(self, era: int) -> None:
        """One pass over all that waits. Several relays may do it at once: each message is re-dated by one of them."""
        after: MessageId | None = None
        redated = left_over = 0
        settled = True
        while True:
            with self._events.step("redate", era=era) as added:
                step = await self._store.redate(era, after=after, limit=REDATE_STEP)
                added["count"] = step.redated
            redated, left_over = redated + step.redated, left_over + step.left_over
            settled = settled and step.settled
            after = step.next
            if after is None:
                break
        if redated:
            self.on_jump()
        if settled and not left_over:
            with self._events.step("redate", era=era):
                await self._store.redate(era, after=None, limit=REDATE_STEP, end=True)
        elif not left_over:
            self._redate_at = self.elapsed() + SETTLE_SECONDS
