"""The database's clock, and its jumps."""

from datetime import datetime

from redrive.message import WorkerId
from redrive.policy import ClockJump
from redrive.ports import ClockLook, ClockVerbs, Now, Redated
from redrive.store.runtime.verbs import from_port
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

    clock_jumped = from_port.value(ClockVerbs.clock_jumped)
    redate = from_port.row(ClockVerbs.redate, Redated)
