"""The half of the model store that is not about single messages: destinations, relays, duties, ranges.

`ModelStore` builds on it. The SQL beside it: verbs/destination.sql, relay.sql, duty.sql, partitions.sql.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from redrive.message import MessageId, WorkerId
from redrive.ports import (
    Asked,
    ClaimRequest,
    DestinationState,
    Now,
    Opened,
    RelayInfo,
    address_refused,
    duty_hold_seconds,
)
from tests.model_store import destinations
from tests.model_store.destinations import Destination
from tests.model_store.tables import START, Tables, milliseconds, require_actor_and_reason

FIRST_WIDTH_SECONDS: Final = 7 * 86_400.0
FIRST_AHEAD: Final = 4
RANGES_AT_ONCE: Final = 60
CLOCK_TOLERANCE: Final = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class _Relay:
    info: RelayInfo
    seen_at: datetime
    listener: str = "off"
    steady: tuple[datetime, datetime] | None = None


@dataclass(frozen=True, slots=True)
class _Duty:
    holder: WorkerId | None = None
    holder_until: datetime | None = None
    started_at: datetime | None = None
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
    _destinations: dict[str, Destination] = field(default_factory=dict, init=False, repr=False)
    _limit_keys: dict[tuple[str, str], Destination] = field(default_factory=dict, init=False, repr=False)
    _key_turns: dict[tuple[str, str], datetime] = field(default_factory=dict, init=False, repr=False)
    _relays: dict[WorkerId, _Relay] = field(default_factory=dict, init=False, repr=False)
    _duties: dict[str, _Duty] = field(default_factory=dict, init=False, repr=False)
    _ranges: list[tuple[datetime, datetime]] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        self._make_partitions(FIRST_WIDTH_SECONDS, FIRST_AHEAD, self.time)

    # destinations

    async def pause(self, destination: str, *, actor: str, reason: str, now: Now = None) -> bool:
        require_actor_and_reason(actor, reason)
        changed = destinations.paused(self._destination(destination), actor=actor, reason=reason, now=self.at(now))
        if changed is not None:
            self._destinations[destination] = changed
        return changed is not None

    async def resume(self, destination: str, *, actor: str, reason: str, now: Now = None) -> bool:
        require_actor_and_reason(actor, reason)
        if not self.is_paused(destination, now):
            return False
        self._destinations[destination] = destinations.resumed(self._destination(destination), now=self.at(now))
        return True

    async def pause_until(self, destination: str, *, actor: str, seconds: float, now: Now = None) -> float | None:
        known = destinations.rested(self._destination(destination), actor=actor, seconds=seconds, now=self.at(now))
        self._destinations[destination] = known
        return known.pause_seconds(self.at(now))

    async def open_breaker(
        self,
        destination: str,
        *,
        claimed_at: datetime,
        code: str,
        cool_off_seconds: float,
        cool_off_max_seconds: float,
        now: Now = None,
    ) -> Opened:
        before, moment = self._destination(destination), self.at(now)
        known = destinations.opened(
            before,
            claimed_at=claimed_at,
            cool_off_seconds=cool_off_seconds,
            cool_off_max_seconds=cool_off_max_seconds,
            now=moment,
        )
        self._destinations[destination] = known
        left = 0.0 if known.breaker_until is None else (known.breaker_until - moment).total_seconds()
        return Opened(known.breaker_changed_at != before.breaker_changed_at, known.breaker_opened_at, max(left, 0.0))

    async def close_breaker(self, destination: str, *, claimed_at: datetime, now: Now = None) -> bool:
        before = self._destination(destination)
        self._destinations[destination] = known = destinations.ramping(before, claimed_at=claimed_at, now=self.at(now))
        return known is not before

    async def half_open(self, destination: str, *, actor: str, reason: str, now: Now = None) -> str:
        require_actor_and_reason(actor, reason)
        known, moment = self._destinations.get(destination), self.at(now)
        if known is None:
            return "not_found"
        paused = known.is_paused(moment)
        if paused and (known.paused_until is None or known.pause_reason != destinations.RETRY_AFTER):
            return "paused"
        if known.breaker == "half_open" and known.breaker_probe in self._leases:
            return "probing"
        if known.breaker_state(moment) in ("closed", "ramping") and not paused:
            return "flows"
        if not any(p.destination == destination and p.due_at <= moment for p in self._pending.values()):
            return "empty"
        self._destinations[destination] = destinations.half_opened(known, now=moment)
        return "done"

    def is_paused(self, destination: str, now: Now = None) -> bool:
        return self._destination(destination).is_paused(self.at(now))

    def is_open(self, destination: str, now: Now = None) -> bool:
        """Whether it may be sent to at all; its limits may still say no."""
        return self._destination(destination).is_open(self.at(now))

    def hands_over(self, destination: str, now: datetime) -> bool:
        """Whether the next message of a lane may follow the last one at once."""
        known = self._destination(destination)
        return known.is_open(now) and not known.limited and not known.money

    def has_room(self, destination: str, now: datetime) -> bool:
        """Whether its limits allow one more."""
        known = self._destination(destination)
        return not known.limited or destinations.allowed(known, self._leases, now) > 0

    def has_record(self, destination: str) -> bool:
        return self._destination(destination).has_record

    def _destination(self, name: str) -> Destination:
        return self._destinations.get(name) or Destination(name=name)

    def _within_limits(
        self, claim_requests: Sequence[ClaimRequest], due: Callable[[ClaimRequest], int], now: datetime
    ) -> tuple[list[ClaimRequest], frozenset[str]]:
        """The rooms that a claim may fill, and the destinations for which more is due than may go."""
        within, held_back = [], set()
        for name, here in _by_destination(claim_requests).items():
            known = self._destination(name)
            if not known.limited:
                within += here
                continue
            if not known.is_paused(now) and known.breaker_state(now) == "open":
                held_back.add(name)
            most = destinations.allowed(known, self._leases, now) if known.is_open(now) else 0
            cut, more = destinations.shared(known, here, most, due)
            within += cut
            if more and known.is_open(now):
                held_back.add(name)
        return within, frozenset(held_back)

    def _charge(self, taken: Mapping[str, Sequence[MessageId]], now: datetime) -> None:
        for name, ids in taken.items():
            known = self._destination(name)
            if known.limited:
                self._destinations[name] = destinations.charged(known, ids, now)

    # relays

    async def register(self, relay: RelayInfo, *, now: Now = None) -> None:
        for name in sorted(relay.money):
            why = self._address_refused(relay, name, self.at(now))
            if why is not None:
                raise address_refused(name, why)
        for name in relay.destinations:
            self._destinations[name] = replace(
                self._destination(name),
                has_record=name in relay.records,
                address=relay.addresses.get(name),
                money=name in relay.money,
                in_doubt=relay.in_doubt.get(name, "resend"),
                rate_per_second=relay.rates.get(name),
                concurrency_limit=relay.concurrency_limits.get(name),
            )
        if relay.concurrency_limits:
            for id, lease in self._leases.items():
                if self._destination(lease.destination).limited:
                    self._leases[id] = replace(lease, counted=True)
        first = self._relays.get(relay.worker)
        self._relays[relay.worker] = _Relay(
            replace(first.info, addresses=relay.addresses) if first else relay, self.at(now)
        )

    def _address_refused(self, relay: RelayInfo, name: str, now: datetime) -> str | None:
        """check_addresses of relay.sql."""
        given, known = relay.addresses.get(name), self._destination(name).address
        others = [
            other.info.addresses.get(name, given)
            for worker, other in self._relays.items()
            if worker != relay.worker and other.seen_at > now - timedelta(minutes=1)
        ]
        if any(other != given for other in others):
            return "relay"
        if known is None or known == given:
            return None
        doubted = [*self._pending.values(), *self._parked.values()]
        if any(one.destination == name and one.in_doubt_since is not None for one in doubted):
            return "in_doubt"
        return "leased" if any(lease.destination == name for lease in self._leases.values()) else None

    async def heartbeat(
        self, worker: WorkerId, *, listener: str = "off", now: Now = None
    ) -> Sequence[DestinationState]:
        relay = self._relays.get(worker)
        if relay is None:
            return []
        self._relays[worker] = replace(relay, seen_at=self.at(now), listener=listener)
        return [self._destination(name).heard(self.at(now)) for name in relay.info.destinations]

    async def announce_idle(
        self, worker: WorkerId, destinations: Sequence[str], *, seconds: float, now: Now = None
    ) -> None:
        """Nobody rings here: whoever has a model store polls."""

    async def echo(self, worker: WorkerId) -> None:
        """Nobody listens here."""

    async def deregister(self, worker: WorkerId) -> None:
        self._relays.pop(worker, None)

    async def forget_relays(self, *, after_seconds: float, now: Now = None) -> int:
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

    async def begin_duty(self, name: str, worker: WorkerId, *, every_seconds: float, now: Now = None) -> bool:
        moment, duty = self.at(now), self._duties.get(name, _Duty())
        if (_is_held(duty, moment) and not _lies_ahead(duty.started_at, moment)) or not _is_due(
            duty, every_seconds, moment
        ):
            return False
        until = moment + timedelta(seconds=duty_hold_seconds(every_seconds))
        self._duties[name] = replace(duty, holder=worker, holder_until=until, started_at=moment)
        return True

    async def end_duty(self, name: str, worker: WorkerId, *, result: str, now: Now = None) -> None:
        duty = self._duties.get(name)
        if duty is not None and duty.holder == worker:
            self._duties[name] = _Duty(started_at=duty.started_at, finished_at=self.at(now), result=result)

    # retention

    async def vacuum(self) -> str:
        return "nothing to do"

    async def run_replay(self, *, every_seconds: float, limit: int, now: Now = None) -> int | None:
        return None

    async def take_requests(
        self, worker: WorkerId, destinations: Sequence[str], *, limit: int, hold_seconds: float, now: Now = None
    ) -> Sequence[Asked]:
        return []

    async def answer_request(self, worker: WorkerId, id: int, answer: Mapping[str, Any], *, now: Now = None) -> bool:
        return False

    async def forget_inbox(self, *, after_seconds: float, limit: int, now: Now = None) -> int:
        return 0

    async def fold_failures(self, *, limit: int, now: Now = None) -> int:
        return 0

    async def make_partitions(self, *, width_seconds: float, ahead: int, now: Now = None) -> int:
        return self._make_partitions(width_seconds, ahead, self.at(now))

    def _make_partitions(self, width_seconds: float, ahead: int, now: datetime) -> int:
        width, made = timedelta(seconds=width_seconds), 0
        start = self._ranges[-1][1] if self._ranges else _floor(now, width_seconds)
        while start <= now + ahead * width and made < RANGES_AT_ONCE:
            self._ranges.append((start, start + width))
            start, made = start + width, made + 1
        return made

    async def ranges(self) -> Sequence[tuple[datetime, datetime]]:
        return list(self._ranges)

    def _was_set_forward(self, now: datetime) -> bool:
        """Within a day: a range may seem older than it is."""
        return False

    async def retire(self, starts_at: datetime, *, now: Now = None) -> str:
        found = next((r for r in self._ranges if r[0] == starts_at), None)
        if found is None:
            return "none"
        moment = now or self.time
        if min(self.oldest_transaction_at or moment, moment) <= found[1] or self._was_set_forward(moment):
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


def _by_destination(claim_requests: Sequence[ClaimRequest]) -> dict[str, list[ClaimRequest]]:
    found: dict[str, list[ClaimRequest]] = {}
    for room in claim_requests:
        found.setdefault(room.destination, []).append(room)
    return found


def _is_held(duty: _Duty, now: datetime) -> bool:
    return duty.holder_until is not None and duty.holder_until >= now


def _is_due(duty: _Duty, every_seconds: float, now: datetime) -> bool:
    done = duty.finished_at
    return done is None or done + timedelta(seconds=every_seconds) <= now or _lies_ahead(done, now)


def _lies_ahead(at: datetime | None, now: datetime) -> bool:
    """Dated by a clock that has been set back since."""
    return at is not None and at > now + CLOCK_TOLERANCE


def _floor(moment: datetime, width_seconds: float) -> datetime:
    seconds = moment.timestamp()
    return moment - timedelta(seconds=seconds - seconds // width_seconds * width_seconds)
