"""Time: the process's own clock, and how relays notice that the database's clock was set."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol, TypeAlias

from redrive.message import MessageId, WorkerId
from redrive.policy import ClockJump

# When a verb runs: None = the database's clock. Only tests pass a time.
Now: TypeAlias = datetime | None


class Clock(Protocol):
    """Monotonic seconds of this process, for timeouts and leases. Wall-clock time comes from the database."""

    def monotonic(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


@dataclass(frozen=True, slots=True)
class ClockLook:
    """era: the number of the latest known jump, 0 = none. unfinished: a jump after which messages are still to be
    re-dated.

    ahead_seconds: how far in the future the newest row was written. jumps: newest first.
    """

    at: datetime
    era: int
    unfinished: int | None = None
    ahead_seconds: float | None = None
    jumps: Sequence[ClockJump] = ()


class Redated(NamedTuple):
    """One step of `redate`. next: the message to continue after; None = done.

    left_over: messages that other transactions have locked. settled: no transaction older than the jump is open.
    """

    next: MessageId | None
    redated: int
    left_over: int
    settled: bool


class ClockVerbs(Protocol):
    async def now(self) -> datetime:
        """The database's clock."""

    async def observe_clock(
        self, worker: WorkerId, *, steady: tuple[datetime, datetime] | None = None, now: Now = None
    ) -> ClockLook:
        """steady: the period in which this relay saw the database's clock run without a jump."""

    async def clock_jumped(
        self, worker: WorkerId, *, era: int, offset_seconds: float, window_seconds: float | None, now: Now = None
    ) -> int:
        """Record a jump that this relay saw since `era`, unless another relay has; returns the present era.

        window_seconds: the jump is at most so old; None where only rows written in the future show it.
        """

    async def redate(
        self, era: int, *, after: MessageId | None, limit: int, end: bool = False, now: Now = None
    ) -> Redated:
        """Re-date one batch of waiting messages after the clock was set back. end: mark this jump as finished."""
