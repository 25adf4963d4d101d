"""Duties: background work of which one relay at a time does each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from redrive.message import Attempt, WorkerId
from redrive.ports.clock import Now


@dataclass(frozen=True, slots=True)
class Reaped:
    """requeued: expired claims that are pending again, in doubt, each a suspect. unconfirmed: nothing was reaped,
    because the database's clock differs from what the relay expected.
    """

    requeued: int
    unconfirmed: bool = False

    def __str__(self) -> str:
        return "the clock is not confirmed" if self.unconfirmed else f"{self.requeued} requeued"


class MendedLanes(NamedTuple):
    """mended: how many were woken. is_over: the last lane was among them."""

    mended: int
    looked_at: int
    is_over: bool


@dataclass(frozen=True, slots=True)
class Asked:
    """An operator's question about a parked message (validate or look up). attempt: as a handler would see it."""

    id: int
    attempt: Attempt


def duty_hold_seconds(every_seconds: float) -> float:
    """How long a duty belongs to the relay that began it."""
    return min(max(2 * every_seconds, 10.0), 600.0)


class DutyVerbs(Protocol):
    """Each duty is one bounded step, safe to run twice."""

    async def begin_duty(self, name: str, worker: WorkerId, *, every_seconds: float, now: Now = None) -> bool:
        """True when the duty is due and no other relay runs it."""

    async def end_duty(self, name: str, worker: WorkerId, *, result: str, now: Now = None) -> None: ...

    async def reap(
        self, *, limit: int, worker: WorkerId | None = None, expected: datetime | None = None, now: Now = None
    ) -> Reaped:
        """Requeue expired claims; with `worker`, all claims of a worker that is known to be dead.

        expected: the database's time as the caller computes it; where it differs, nothing is reaped.
        """

    async def expire(self, *, limit: int, now: Now = None) -> int: ...

    async def forget_inbox(self, *, after_seconds: float, limit: int, now: Now = None) -> int:
        """Delete inbox rows that were received so long ago, unless their engine message is still open; how many."""

    async def fold_failures(self, *, limit: int, now: Now = None) -> int:
        """Count failures parked since the last call into their groups."""

    async def run_replay(self, *, every_seconds: float, limit: int, now: Now = None) -> int | None:
        """One step of the replay that has waited longest: how many messages it sent or examined. None: none is due."""

    async def take_requests(
        self, worker: WorkerId, destinations: Sequence[str], *, limit: int, hold_seconds: float, now: Now = None
    ) -> Sequence[Asked]:
        """Operators' open questions; after `hold_seconds` another relay may take them."""

    async def answer_request(self, worker: WorkerId, id: int, answer: Mapping[str, Any], *, now: Now = None) -> bool:
        """False where the answer came too late."""

    async def mend_lanes(self, *, lanes: int, now: Now = None) -> MendedLanes:
        """Wake free lanes that have a message but no wake-up time; continues where the last call ended."""

    async def vacuum(self) -> str:
        """Vacuum tables where autovacuum is too late; returns in words what was done."""

    async def make_partitions(self, *, width_seconds: float, ahead: int, now: Now = None) -> int: ...

    async def ranges(self) -> Sequence[tuple[datetime, datetime]]:
        """Start and end of every partition range, oldest first."""

    async def retire(self, starts_at: datetime, *, now: Now = None) -> str:
        """Drop one range if nothing in it is open: retired, open, young or none."""
