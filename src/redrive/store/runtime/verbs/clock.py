"""The database's clock, and its jumps."""

from __future__ import annotations

from datetime import datetime

from redrive.message import MessageId, WorkerId
from redrive.policy import ClockJump
from redrive.ports import ClockLook, Now, Redated
from redrive.store.runtime import wire
from redrive.store.runtime.verbs.connected import Connected


class PostgresClock(Connected):
    """`redrive.ports.ClockVerbs`."""

    async def now(self) -> datetime:
        moment: datetime = await self._value("SELECT clock_timestamp()", [])
        return moment

    async def observe_clock(
        self, worker: WorkerId, *, steady: tuple[datetime, datetime] | None = None, now: Now = None
    ) -> ClockLook:
        since, until = steady or (None, None)
        values = [worker, since, until, now]
        (row,) = await self.rows("SELECT * FROM redrive.observe_clock_1(%s, %s, %s, %s)", values)
        jumps = tuple(ClockJump(*jump) for jump in zip(row.noticed or (), row.offsets or (), strict=True))
        return ClockLook(row.at, row.era, row.unfinished, row.ahead_seconds, jumps)

    async def clock_jumped(
        self, worker: WorkerId, *, era: int, offset_seconds: float, window_seconds: float | None, now: Now = None
    ) -> int:
        values = [worker, era, offset_seconds, window_seconds, now]
        return int(await self._value("SELECT redrive.clock_jumped_1(%s, %s, %s, %s, %s)", values))

    async def redate(
        self, era: int, *, after: MessageId | None, limit: int, end: bool = False, now: Now = None
    ) -> Redated:
        values = [era, after, limit, end, now]
        return wire.objects(Redated, await self.rows("SELECT * FROM redrive.redate_1(%s, %s, %s, %s, %s)", values))[0]
