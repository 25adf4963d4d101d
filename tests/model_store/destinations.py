"""What the model store knows of a destination: pause, breaker, limits. Pure; `Upkeep` keeps one value for each name.

The same rules as in SQL, so that the same tests hold for both: verbs/limits.sql, breaker.sql, destination.sql.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from redrive.message import MessageId
from redrive.ports import ClaimRequest, DestinationState
from tests.model_store.transitions import Lease

RAMP: Final = timedelta(seconds=10)
TURNS: Final = (0, 1, 0, 0, 1, 0, 2, 0, 1, 0)  # of the levels of a destination with limits
UNLIMITED: Final = 1_000_000
RETRY_AFTER: Final = "retry_after"
RATE_WINDOW: Final = timedelta(milliseconds=1025)  # in it a rate lets out no more than the rate, rounded up
CHARGES_APART: Final = timedelta(milliseconds=20)


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """One row of `destination`, and of `allowance`."""

    name: str
    has_record: bool = False
    address: str | None = None
    money: bool = False
    in_doubt: str = "resend"
    paused_at: datetime | None = None
    paused_until: datetime | None = None
    paused_by: str | None = None
    pause_reason: str | None = None
    breaker: str = "closed"
    breaker_changed_at: datetime | None = None
    breaker_until: datetime | None = None
    breaker_opened_at: datetime | None = None
    breaker_trips: int = 0
    breaker_code: str | None = None
    breaker_probe: MessageId | None = None
    concurrency_limit: int | None = None
    rate_per_second: float | None = None
    rate_room: float | None = None
    rate_at: datetime | None = None
    charges: tuple[tuple[datetime, int], ...] = ()
    turns: int = 0

    @property
    def limited(self) -> bool:
        return self.breaker != "closed" or self.concurrency_limit is not None or self.rate_per_second is not None

    def is_paused(self, now: datetime) -> bool:
        return self.paused_at is not None and (self.paused_until is None or self.paused_until > now)

    def pause_seconds(self, now: datetime) -> float | None:
        return None if self.paused_until is None else (self.paused_until - now).total_seconds()

    def breaker_state(self, now: datetime) -> str:
        if self.breaker_until is not None and self.breaker_until > now:
            return self.breaker
        return {"open": "half_open", "ramping": "closed"}.get(self.breaker, self.breaker)

    def is_open(self, now: datetime) -> bool:
        return not self.is_paused(now) and self.breaker_state(now) != "open"

    def heard(self, now: datetime) -> DestinationState:
        """What a heartbeat tells."""
        known = DestinationState(
            name=self.name,
            paused=self.is_paused(now),
            breaker=self.breaker_state(now),
            breaker_opened_at=self.breaker_opened_at,
        )
        if not known.paused:
            return known
        return replace(
            known,
            pause_reason=self.pause_reason,
            paused_by=self.paused_by,
            paused_at=self.paused_at,
            pause_seconds=self.pause_seconds(now),
        )


# pause and resume


def paused(known: Destination, *, actor: str, reason: str, now: datetime) -> Destination | None:
    """None where somebody has paused it already."""
    if known.paused_at is not None and known.paused_until is None:
        return None
    return replace(known, paused_at=now, paused_until=None, paused_by=actor, pause_reason=reason)


def resumed(known: Destination, *, now: datetime) -> Destination:
    """The ramp that was to follow a Retry-After begins now."""
    known = replace(known, paused_at=None, paused_until=None, paused_by=None, pause_reason=None)
    if known.breaker == "ramping" and known.breaker_changed_at is not None and known.breaker_changed_at > now:
        return replace(known, breaker_changed_at=now, breaker_until=now + RAMP)
    return known


def rested(known: Destination, *, actor: str, seconds: float, now: datetime) -> Destination:
    """Paused by a Retry-After, and ramping then; as it was where it rests for longer, or by a person's word."""
    until = now + timedelta(seconds=max(seconds, 0))
    resting = known.is_paused(now)
    if resting and (known.paused_until is None or known.pause_reason != RETRY_AFTER or known.paused_until >= until):
        return known
    resting_since = known.paused_at if resting else now
    known = replace(known, paused_at=resting_since, paused_until=until, paused_by=actor, pause_reason=RETRY_AFTER)
    if known.breaker == "open":
        return known
    return replace(
        known,
        breaker="ramping",
        breaker_changed_at=until,
        breaker_until=until + RAMP,
        breaker_opened_at=now,
        breaker_trips=_trips(known, now),
    )


# the breaker


def opened(
    known: Destination, *, claimed_at: datetime, cool_off_seconds: float, cool_off_max_seconds: float, now: datetime
) -> Destination:
    """As it was where the claim is from before it last opened; dated to now where it is open already."""
    if not _has_say(known, claimed_at):
        return known
    if known.breaker == "open":
        return replace(known, breaker_opened_at=now)
    trips = _trips(known, now)
    cool_off = min(cool_off_seconds * 2.0 ** min(trips, 30), cool_off_max_seconds)
    return replace(
        known,
        breaker="open",
        breaker_changed_at=now,
        breaker_opened_at=now,
        breaker_until=now + timedelta(seconds=cool_off),
        breaker_trips=trips + 1,
    )


def ramping(known: Destination, *, claimed_at: datetime, now: datetime) -> Destination:
    if known.breaker != "half_open" or not _has_say(known, claimed_at):
        return known
    return replace(known, breaker="ramping", breaker_changed_at=now, breaker_until=now + RAMP)


def half_opened(known: Destination, *, now: datetime) -> Destination:
    return replace(resumed(known, now=now), breaker="open", breaker_changed_at=now, breaker_until=now)


def _has_say(known: Destination, claimed_at: datetime) -> bool:
    return known.breaker_opened_at is None or claimed_at > known.breaker_opened_at


def _trips(known: Destination, now: datetime) -> int:
    return 0 if known.breaker_state(now) == "closed" else known.breaker_trips


# limits


def allowed(known: Destination, leases: Mapping[MessageId, Lease], now: datetime) -> int:
    """How many more may go out now."""
    ours = [lease for lease in leases.values() if lease.counted and lease.destination == known.name]
    most: float = UNLIMITED
    match known.breaker_state(now):
        case "open":
            return 0
        case "half_open":
            most = 0 if known.breaker == "half_open" and known.breaker_probe in leases else 1
        case "ramping":
            assert known.breaker_changed_at is not None
            assert known.breaker_opened_at is not None
            since = known.breaker_opened_at
            seconds = math.floor((now - known.breaker_changed_at).total_seconds())
            most = 2.0**seconds - sum(lease.claimed_at > since for lease in ours)
    if known.concurrency_limit is not None:
        most = min(most, known.concurrency_limit - len(ours))
    if known.rate_per_second is not None:
        most = min(most, rate_room(known, now))
    return max(math.floor(most), 0)


def rate_room(known: Destination, now: datetime) -> float:
    """What the rate lets out now: what it has saved up, but in any second no more than the rate, rounded up."""
    rate = known.rate_per_second or 0.0
    moment = _rate_at(known, now)
    is_anew = known.rate_at is None or moment < known.rate_at
    recent = 0 if is_anew else sum(count for at, count in known.charges if at > moment - RATE_WINDOW)
    return min(_rate_saved(known, now), math.ceil(rate) - recent)


def _rate_saved(known: Destination, now: datetime) -> float:
    """At most one second's worth, and room for one at least."""
    rate = known.rate_per_second or 0.0
    most = max(rate, 1.0)
    if known.rate_room is None or known.rate_at is None or _rate_at(known, now) < known.rate_at:
        return most
    return min(most, known.rate_room + (_rate_at(known, now) - known.rate_at).total_seconds() * rate)


def _charges(known: Destination, taken: int, at: datetime) -> tuple[tuple[datetime, int], ...]:
    """What the rate let out within the last second, with one charge more; those that are close become one."""
    kept = tuple(charge for charge in known.charges if at - RATE_WINDOW < charge[0] <= at)
    if len(kept) > 1 and kept[-2][0] > at - CHARGES_APART:
        return (*kept[:-1], (at, kept[-1][1] + taken))
    return (*kept, (at, taken))


def _rate_at(known: Destination, now: datetime) -> datetime:
    """A claim that began a little before the last one has saved up nothing; a clock that was set back begins anew."""
    last = known.rate_at
    return last if last is not None and last - timedelta(seconds=10) < now < last else now


def charged(known: Destination, taken: Sequence[MessageId], now: datetime) -> Destination:
    """What a claim has just taken."""
    room = _rate_saved(known, now) if known.rate_per_second is not None else 0.0
    charged = replace(
        known,
        rate_room=room - len(taken),
        rate_at=_rate_at(known, now),
        charges=_charges(known, len(taken), _rate_at(known, now)),
        turns=known.turns + len(taken),
    )
    match known.breaker_state(now):
        case "half_open":
            return replace(
                charged, breaker="half_open", breaker_probe=taken[0], breaker_changed_at=now, breaker_until=None
            )
        case "closed" if known.breaker != "closed":
            since = known.breaker_until
            return replace(charged, breaker="closed", breaker_changed_at=since, breaker_until=None, breaker_trips=0)
        case _:
            return charged


def shared(
    known: Destination, claim_requests: Sequence[ClaimRequest], most: int, due: Callable[[ClaimRequest], int]
) -> tuple[list[ClaimRequest], bool]:
    """The rooms of one destination cut down to `most` messages, shared by turns; and whether that held any back."""
    most = min(most, sum(room.room for room in claim_requests))
    ranked = []
    for place, room in enumerate(claim_requests):
        turns = _turns_of(room.level, known.turns, most)
        weight = TURNS.count(room.level)
        count = min(due(room), room.room, most + 1)
        ranked += [(k > turns, k / weight, room.level, place) for k in range(1, count + 1)]
    ranked.sort()
    given = [place for *_, place in ranked[:most]]
    return [room._replace(room=given.count(place)) for place, room in enumerate(claim_requests)], len(ranked) > most


def _turns_of(level: int, turns: int, count: int) -> int:
    return sum(TURNS[turn % len(TURNS)] == level for turn in range(turns, turns + count))
