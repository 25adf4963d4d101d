"""Destinations and their limit keys: pauses, circuit breakers, rates."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

from redrive.message import MessageId
from redrive.ports.clock import Now


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowState:
    """Whether messages go to a destination or to one of its limit keys.

    pause_reason: `bug`, `epoch`, `retry_after`, or an operator's text. pause_seconds: None = until an operator
    resumes it.

    breaker: closed, open, half_open or ramping. breaker_opened_at: claims from before that are handed back, not sent.
    """

    paused: bool
    pause_reason: str | None = None
    paused_by: str | None = None
    paused_at: datetime | None = None
    pause_seconds: float | None = None
    breaker: str = "closed"
    breaker_opened_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationState(FlowState):
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitKeyState(FlowState):
    """A limit key that is paused or whose breaker is not closed.

    breaker_seconds: how much longer the breaker stays in its state; None = without limit. ramp_seconds: for how long it
    has been ramping; negative where the ramp follows a pause.
    """

    destination: str
    key: str
    breaker_seconds: float | None = None
    ramp_seconds: float | None = None
    breaker_code: str | None = None


class Opened(NamedTuple):
    """opened: by this call. opened_at: when it last opened. open_seconds: for how long."""

    opened: bool
    opened_at: datetime | None
    open_seconds: float


class Booked(NamedTuple):
    """Reserved turns of a limit key with a rate. seconds: until the first."""

    seconds: float
    turns: int


class DestinationVerbs(Protocol):
    async def pause(self, destination: str, *, actor: str, reason: str, now: Now = None) -> bool: ...

    async def resume(self, destination: str, *, actor: str, reason: str, now: Now = None) -> bool: ...

    async def pause_until(self, destination: str, *, actor: str, seconds: float, now: Now = None) -> float | None:
        """The destination asked for a pause (Retry-After). Returns the seconds left; None where a person paused it."""

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
        """Unless this evidence (a message claimed at `claimed_at`) is older than its last opening."""

    async def close_breaker(self, destination: str, *, claimed_at: datetime, now: Now = None) -> bool:
        """The probe claimed at `claimed_at` was answered: begin the ramp. False where it was not the latest probe."""

    async def limit_keys(self, destinations: Sequence[str], *, limit: int, now: Now = None) -> Sequence[LimitKeyState]:
        """Those that are paused or whose breaker is not closed."""

    async def pause_key(self, destination: str, key: str, *, actor: str, reason: str, now: Now = None) -> bool:
        """`pause` of one limit key."""

    async def resume_key(self, destination: str, key: str, *, actor: str, reason: str, now: Now = None) -> bool:
        """`resume` of one limit key; messages that were put off for it are due at once."""

    async def rest_key(
        self, destination: str, key: str, *, actor: str, seconds: float, now: Now = None
    ) -> float | None:
        """`pause_until` of one limit key."""

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
        """`open_breaker` of one limit key."""

    async def probe_key(self, destination: str, key: str, id: MessageId, *, now: Now = None) -> str:
        """Whether a message may go to a key whose breaker was open: go (as its probe), flows (it is closed) or wait."""

    async def close_key(self, destination: str, key: str, *, claimed_at: datetime, now: Now = None) -> bool:
        """`close_breaker` of one limit key."""

    async def book_key(
        self, destination: str, key: str, *, count: int, rate: float, most_seconds: float, now: Now = None
    ) -> Booked:
        """Reserve at most `count` turns of a key, none that begins later than `most_seconds`."""
