"""Jumps of the model store's clock: the same rules as verbs/clock.sql."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from redrive.message import MessageId, WorkerId
from redrive.policy import ClockJump
from redrive.ports import ClockLook, Now, Redated
from tests.model_store.transitions import Pending
from tests.model_store.upkeep import CLOCK_TOLERANCE as TOLERANCE
from tests.model_store.upkeep import Upkeep


@dataclass(frozen=True, slots=True)
class Jump:
    """One row of `clock_jump`. waited: what was pending when it was noticed; what changed since is never re-dated.

    written: all messages that there were then.
    """

    noticed_at: datetime
    expected_at: datetime
    offset: timedelta
    window: timedelta | None
    waited: Mapping[MessageId, Pending]
    written: AbstractSet[MessageId]
    finished: bool

    @property
    def seen(self) -> ClockJump:
        window = None if self.window is None else self.window.total_seconds()
        return ClockJump(self.noticed_at, self.offset.total_seconds(), window)


@dataclass
class Jumps(Upkeep):
    """jumps: those that were recorded, oldest first."""

    jumps: list[Jump] = field(default_factory=list, init=False)

    async def observe_clock(
        self, worker: WorkerId, *, steady: tuple[datetime, datetime] | None = None, now: Now = None
    ) -> ClockLook:
        moment = self.at(now)
        if worker in self._relays:
            self._relays[worker] = replace(self._relays[worker], steady=steady)
        seen = [relay.seen_at for relay in self._relays.values()]
        done = [at for duty in self._duties.values() for at in (duty.started_at, duty.finished_at) if at is not None]
        enqueued = self._enqueued_since_a_jump() if steady is None else []
        latest = max([*seen, *done, *enqueued], default=moment)
        unfinished = [number for number, jump in enumerate(self.jumps, 1) if not jump.finished]
        return ClockLook(
            moment,
            len(self.jumps),
            unfinished[0] if unfinished else None,
            (latest - moment).total_seconds() if latest > moment + TOLERANCE else None,
            tuple(jump.seen for jump in reversed(self.jumps[-20:])),
        )

    def _enqueued_since_a_jump(self) -> list[datetime]:
        """When the newest messages that wait were enqueued, but for those that a recorded jump explains."""
        explained = self.jumps[-1].written if self.jumps else frozenset()
        return [self._messages[id].created_at for id in sorted(self._pending)[-10:] if id not in explained]

    async def clock_jumped(
        self, worker: WorkerId, *, era: int, offset_seconds: float, window_seconds: float | None, now: Now = None
    ) -> int:
        moment = self.at(now)
        later = self.jumps[era:]
        by = timedelta(seconds=offset_seconds) - sum((jump.offset for jump in later), timedelta())
        if (window_seconds is None and later) or abs(by) <= TOLERANCE or self._contradicted(worker, by, moment):
            return len(self.jumps)
        window = None if window_seconds is None else timedelta(seconds=window_seconds)
        self.jumps.append(
            Jump(moment, moment - by, by, window, dict(self._pending), frozenset(self._messages), by > timedelta())
        )
        for other, relay in self._relays.items():
            seen_at = relay.seen_at + by if relay.seen_at > moment else relay.seen_at
            self._relays[other] = replace(relay, steady=None, seen_at=seen_at)
        if by < timedelta():
            self._set_back(by, moment)
        return len(self.jumps)

    def _contradicted(self, worker: WorkerId, by: timedelta, now: datetime) -> bool:
        """Another relay has seen the clock go on where this one says that it jumped."""
        stretches = [relay.steady for other, relay in self._relays.items() if other != worker and relay.steady]
        return by > timedelta() and any(
            min(until, now) - max(since, now - by) > TOLERANCE for since, until in stretches
        )

    def _set_back(self, by: timedelta, now: datetime) -> None:
        def earlier(at: datetime | None) -> datetime | None:
            return at + by if at is not None and at > now else at

        for name, known in self._destinations.items():
            self._destinations[name] = replace(
                known,
                paused_at=known.paused_at if known.paused_until is None else earlier(known.paused_at),
                paused_until=earlier(known.paused_until),
                breaker_until=earlier(known.breaker_until),
                breaker_changed_at=earlier(known.breaker_changed_at),
                breaker_opened_at=earlier(known.breaker_opened_at),
            )
        for name, duty in self._duties.items():
            held = duty.started_at is not None and duty.started_at > now and duty.holder_until is not None
            self._duties[name] = replace(
                duty,
                holder_until=duty.holder_until + by if held and duty.holder_until else duty.holder_until,
                started_at=duty.started_at and min(duty.started_at, now),
                finished_at=duty.finished_at and min(duty.finished_at, now),
            )

    def _was_set_forward(self, now: datetime) -> bool:
        return any(jump.offset > timedelta() and jump.noticed_at > now - timedelta(days=1) for jump in self.jumps)

    async def redate(
        self, era: int, *, after: MessageId | None, limit: int, end: bool = False, now: Now = None
    ) -> Redated:
        jump = self.jumps[era - 1]
        if jump.finished:
            return Redated(None, 0, 0, settled=True)
        if end:
            self.jumps[era - 1] = replace(jump, finished=True)
            return Redated(None, 0, 0, settled=True)
        moment, count = self.at(now), 0
        for pending in list(self._pending.values()):
            if pending.due_at <= moment or jump.waited.get(pending.id) is not pending:
                continue
            due_at = self._redated_due(pending, jump, moment)
            if due_at is not None:
                self._pending[pending.id] = replace(pending, due_at=due_at)
                count += 1
        return Redated(None, count, 0, settled=True)

    def _redated_due(self, pending: Pending, jump: Jump, now: datetime) -> datetime | None:
        rows = self._archive.get(pending.id, ())
        written = max(row.completed_at for row in rows) if pending.attempt else self._messages[pending.id].created_at
        if written <= jump.noticed_at and (jump.window is None or written >= jump.noticed_at - jump.window):
            return None
        if pending.due_at <= max(jump.expected_at, written + timedelta(seconds=1)):
            return now
        return max(pending.due_at + jump.offset, now) if pending.attempt else None
