"""The half of the model store that is not about single messages: destinations, relays, duties, ranges.

`ModelStore` builds on it. The SQL beside it: verbs/destination.sql, relay.sql, duty.sql, partitions.sql.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from redrive.message import WorkerId
from redrive.ports import DestinationState, RelayInfo, duty_hold_seconds
from redrive.testing.tables import START, Tables, milliseconds, require_actor_and_reason

FIRST_WIDTH_SECONDS: Final = 7 * 86_400.0
FIRST_AHEAD: Final = 4


@dataclass(frozen=True, slots=True)
class _Destination:
    state: DestinationState
    has_record: bool = False


@dataclass(frozen=True, slots=True)
class _Relay:
    info: RelayInfo
    seen_at: datetime
    listener: str = "off"


@dataclass(frozen=True, slots=True)
class _Duty:
    holder: WorkerId | None = None
    holder_until: datetime | None = None
    finished_at: datetime | None = None
    result: str | None = None


@dataclass
class Upkeep(Tables):
    """server_started_at: when PostgreSQL came up; a lease runs out only a lease after that.

    oldest_transaction_at: when the oldest transaction that is still open began; a range that ends later than
    that is not retired. None = there is none.
    """

    server_started_at: datetime = START
    oldest_transaction_at: datetime | None = None
    _destinations: dict[str, _Destination] = field(default_factory=dict, init=False, repr=False)
    _relays: dict[WorkerId, _Relay] = field(default_factory=dict, init=False, repr=False)
    _duties: dict[str, _Duty] = field(default_factory=dict, init=False, repr=False)
    _ranges: list[tuple[datetime, datetime]] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        self._make_partitions(FIRST_WIDTH_SECONDS, FIRST_AHEAD, self.time)

    # destinations

    async def pause(self, destination: str, *, actor: str, reason: str, now: datetime | None = None) -> bool:
        require_actor_and_reason(actor, reason)
        known = self._destination(destination)
        if known.state.paused:
            return False
        paused = DestinationState(
            name=destination, paused=True, pause_reason=reason, paused_by=actor, paused_at=self.at(now)
        )
        self._destinations[destination] = replace(known, state=paused)
        return True

    async def resume(
        self,
        destination: str,
        *,
        actor: str,
        reason: str,
        now: datetime | None = None,  # noqa: ARG002 - the port's; only the audit would keep it
    ) -> bool:
        require_actor_and_reason(actor, reason)
        if not self.is_paused(destination):
            return False
        known = self._destination(destination)
        self._destinations[destination] = replace(known, state=_open(destination))
        return True

    def is_paused(self, destination: str) -> bool:
        return self._destination(destination).state.paused

    def has_record(self, destination: str) -> bool:
        return self._destination(destination).has_record

    def _destination(self, name: str) -> _Destination:
        return self._destinations.get(name) or _Destination(_open(name))

    # relays

    async def register(self, relay: RelayInfo, *, now: datetime | None = None) -> None:
        for name in relay.destinations:
            known = self._destination(name)
            self._destinations[name] = replace(known, has_record=name in relay.records)
        first = self._relays.get(relay.worker)
        self._relays[relay.worker] = _Relay(first.info if first else relay, self.at(now))

    async def heartbeat(
        self, worker: WorkerId, *, listener: str = "off", now: datetime | None = None
    ) -> Sequence[DestinationState]:
        relay = self._relays.get(worker)
        if relay is None:
            return []
        self._relays[worker] = replace(relay, seen_at=self.at(now), listener=listener)
        return [self._destination(name).state for name in relay.info.destinations]

    async def doze(
        self, worker: WorkerId, destinations: Sequence[str], *, seconds: float, now: datetime | None = None
    ) -> None:
        """Nobody rings here: whoever has a model store polls."""

    async def probe(self, worker: WorkerId) -> None:
        """Nobody listens here."""

    async def deregister(self, worker: WorkerId) -> None:
        self._relays.pop(worker, None)

    async def forget_relays(self, *, after_seconds: float, now: datetime | None = None) -> int:
        oldest = self.at(now) - timedelta(seconds=after_seconds)
        gone = [worker for worker, relay in self._relays.items() if relay.seen_at < oldest]
        for worker in gone:
            del self._relays[worker]
        return len(gone)

    @property
    def relays(self) -> Sequence[WorkerId]:
        """The workers that are registered."""
        return list(self._relays)

    # duties

    async def begin_duty(
        self, name: str, worker: WorkerId, *, every_seconds: float, now: datetime | None = None
    ) -> bool:
        moment, duty = self.at(now), self._duties.get(name, _Duty())
        if _is_held(duty, moment) or not _is_due(duty, every_seconds, moment):
            return False
        until = moment + timedelta(seconds=duty_hold_seconds(every_seconds))
        self._duties[name] = replace(duty, holder=worker, holder_until=until)
        return True

    async def end_duty(self, name: str, worker: WorkerId, *, result: str, now: datetime | None = None) -> None:
        duty = self._duties.get(name)
        if duty is not None and duty.holder == worker:
            self._duties[name] = _Duty(finished_at=self.at(now), result=result)

    # retention

    async def make_partitions(self, *, width_seconds: float, ahead: int, now: datetime | None = None) -> int:
        return self._make_partitions(width_seconds, ahead, self.at(now))

    def _make_partitions(self, width_seconds: float, ahead: int, now: datetime) -> int:
        width, made = timedelta(seconds=width_seconds), 0
        start = self._ranges[-1][1] if self._ranges else _floor(now, width_seconds)
        while start <= now + ahead * width:
            self._ranges.append((start, start + width))
            start, made = start + width, made + 1
        return made

    async def ranges(self) -> Sequence[tuple[datetime, datetime]]:
        return list(self._ranges)

    async def retire(self, starts_at: datetime, *, now: datetime | None = None) -> str:
        found = next((r for r in self._ranges if r[0] == starts_at), None)
        if found is None:
            return "none"
        moment = now or self.time
        if min(self.oldest_transaction_at or moment, moment) <= found[1]:
            return "young"
        low, high = map(milliseconds, found)
        ids = [id for id in self._messages if low <= id.int >> 80 < high]
        if any(id not in self._closed for id in ids):
            return "open"
        for id in ids:
            for table in (self._messages, self._closed, self._archive):
                table.pop(id, None)
        self._ranges.remove(found)
        return "retired"


def _open(name: str) -> DestinationState:
    return DestinationState(name=name, paused=False)


def _is_held(duty: _Duty, now: datetime) -> bool:
    return duty.holder_until is not None and duty.holder_until >= now


def _is_due(duty: _Duty, every_seconds: float, now: datetime) -> bool:
    return duty.finished_at is None or duty.finished_at + timedelta(seconds=every_seconds) <= now


def _floor(moment: datetime, width_seconds: float) -> datetime:
    seconds = moment.timestamp()
    return moment - timedelta(seconds=seconds - seconds // width_seconds * width_seconds)
