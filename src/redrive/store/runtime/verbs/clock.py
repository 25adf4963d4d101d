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
        moment: datetime = (await self.rows("SELECT clock_timestamp()", []))[0][0]
        return moment

    async def observe_clock(
        self, worker: WorkerId, *, steady: tuple[datetime, datetime] | None = None, now: Now = None
    ) -> ClockLook:
        since, until = steady or (None, None)
        (row,) = await self.call("observe_clock_1", worker, since, until, now)
        columns = (row.noticed or (), row.offsets or (), row.windows or ())
        jumps = tuple(ClockJump(*jump) for jump in zip(*columns, strict=True))
        return ClockLook(row.at, row.era, row.unfinished, row.ahead_seconds, jumps)

    async def clock_jumped(
        self, worker: WorkerId, *, era: int, offset_seconds: float, window_seconds: float | None, now: Now = None
    ) -> int:
        return int(await self.value("clock_jumped_1", worker, era, offset_seconds, window_seconds, now))

    async def redate(
        self, era: int, *, after: MessageId | None, limit: int, end: bool = False, now: Now = None
    ) -> Redated:
        return wire.objects(Redated, await self.call("redate_1", era, after, limit, end, now))[0]
