"""Limit keys in the model store: the rules of a destination's pause and breaker, for one key of it (G-31).

The SQL beside it: verbs/limit_keys.sql.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from redrive.message import MessageId
from redrive.ports import Booked, LimitKeyState, Now, Opened, PutOff
from tests.model_store import destinations
from tests.model_store.destinations import Destination
from tests.model_store.tables import require_actor_and_reason
from tests.model_store.upkeep import Upkeep

PAUSED_SECONDS: Final = 3600.0


class LimitKeys(Upkeep):
    """The verbs of `redrive.store.runtime.limit_keys`."""

    async def limit_keys(self, destinations: Sequence[str], *, limit: int, now: Now = None) -> Sequence[LimitKeyState]:
        moment = self.at(now)
        states = (_state(name, key, known, moment) for (name, key), known in sorted(self._limit_keys.items()))
        shown = [s for s in states if s.destination in destinations and (s.paused or s.breaker != "closed")]
        return shown[:limit]

    async def pause_key(self, destination: str, key: str, *, actor: str, reason: str, now: Now = None) -> bool:
        require_actor_and_reason(actor, reason)
        changed = destinations.paused(self._key(destination, key), actor=actor, reason=reason, now=self.at(now))
        if changed is not None:
            self._limit_keys[destination, key] = changed
        return changed is not None

    async def resume_key(self, destination: str, key: str, *, actor: str, reason: str, now: Now = None) -> bool:
        require_actor_and_reason(actor, reason)
        known, moment = self._key(destination, key), self.at(now)
        if not known.is_paused(moment):
            return False
        self._limit_keys[destination, key] = destinations.resumed(known, now=moment)
        for pending in list(self._pending.values()):
            if (pending.destination, pending.limit_key) == (destination, key) and pending.due_at > moment:
                self._pending[pending.id] = replace(pending, due_at=moment, limit_key=None)
        return True

    async def rest_key(
        self, destination: str, key: str, *, actor: str, seconds: float, now: Now = None
    ) -> float | None:
        moment = self.at(now)
        known = destinations.rested(self._key(destination, key), actor=actor, seconds=seconds, now=moment)
        self._limit_keys[destination, key] = known
        return known.pause_seconds(moment)

    async def open_key(
        self,
        destination: str,
        key: str,
        *,
        claimed_at: datetime,
        code: str,
        cool_off_seconds: float,
        cool_off_max_seconds: float,
        now: Now = None,
    ) -> Opened:
        before, moment = self._key(destination, key), self.at(now)
        known = before
        if before.breaker != "open":  # a relay holds a key back by its state, whatever the date of a claim
            known = destinations.opened(
                before,
                claimed_at=claimed_at,
                cool_off_seconds=cool_off_seconds,
                cool_off_max_seconds=cool_off_max_seconds,
                now=moment,
            )
        if known is not before:
            known = replace(known, breaker_code=code)
        self._limit_keys[destination, key] = known
        left = 0.0 if known.breaker_until is None else (known.breaker_until - moment).total_seconds()
        return Opened(known is not before, known.breaker_opened_at, max(left, 0.0))

    async def probe_key(self, destination: str, key: str, id: MessageId, *, now: Now = None) -> str:
        known, moment = self._key(destination, key), self.at(now)
        state = known.breaker_state(moment)
        if state in ("closed", "ramping"):
            return "flows"
        probing = known.breaker == "half_open" and known.breaker_probe != id and known.breaker_probe in self._leases
        if known.is_paused(moment) or state == "open" or probing:
            return "wait"
        self._limit_keys[destination, key] = replace(
            known, breaker="half_open", breaker_probe=id, breaker_changed_at=moment, breaker_until=None
        )
        return "go"

    async def close_key(self, destination: str, key: str, *, claimed_at: datetime, now: Now = None) -> bool:
        before = self._key(destination, key)
        known = destinations.ramping(before, claimed_at=claimed_at, now=self.at(now))
        if known is not before:
            self._limit_keys[destination, key] = known
        return known is not before

    async def book_key(
        self, destination: str, key: str, *, count: int, rate: float, most_seconds: float, now: Now = None
    ) -> Booked:
        moment = self.at(now)
        first = max(self._key_turns.get((destination, key), moment), moment)
        seconds = (first - moment).total_seconds()
        booked = min(count, max(int((most_seconds - seconds) * rate + 1e-6) + 1, 0)) if seconds <= most_seconds else 0
        self._key_turns[destination, key] = first + timedelta(seconds=booked / rate)
        return Booked(seconds, booked)

    def _put_off(self, destination: str, asked: PutOff, now: datetime) -> PutOff | None:
        """For how long; None where nothing holds the key any more."""
        if asked.seconds is not None:
            return asked
        known = self._key(destination, asked.key)
        if known.is_paused(now):
            return PutOff(PAUSED_SECONDS if known.paused_until is None else known.pause_seconds(now), asked.key)
        if known.breaker_state(now) == "open" and known.breaker_until is not None:
            return PutOff((known.breaker_until - now).total_seconds(), asked.key)
        return None

    def _key(self, destination: str, key: str) -> Destination:
        return self._limit_keys.get((destination, key)) or Destination(name=destination)


def _state(destination: str, key: str, known: Destination, now: datetime) -> LimitKeyState:
    paused, breaker, until = known.is_paused(now), known.breaker_state(now), known.breaker_until
    since = known.breaker_changed_at
    state = LimitKeyState(
        destination=destination,
        key=key,
        paused=paused,
        breaker=breaker,
        breaker_opened_at=known.breaker_opened_at,
        breaker_seconds=(until - now).total_seconds() if until is not None and until > now else None,
        ramp_seconds=(now - since).total_seconds() if breaker == "ramping" and since is not None else None,
        breaker_code=known.breaker_code,
    )
    if not paused:
        return state
    return replace(
        state,
        pause_reason=known.pause_reason,
        paused_by=known.paused_by,
        paused_at=known.paused_at,
        pause_seconds=known.pause_seconds(now),
    )
