"""The health of a relay, judged by its events (G-20).

live: its loop went round within `stalled_seconds`; else only a new process helps. ready: it has registered, the
database answers, and it is not stopping.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from redrive.events import Events

STALLED_SECONDS: Final = 90.0  # longer than a verb may take on a database that does not answer (30 s), and its retry

JUMP_SHOWN_SECONDS: Final = 86_400.0


class Verdict(StrEnum):
    """degraded: it works, and something hinders it. unhealthy: it does not work."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    UNHEALTHY = "unhealthy"


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    verdict: Verdict
    reason: str = ""


class Health:
    def __init__(
        self, *, stalled_seconds: float = STALLED_SECONDS, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._stalled_seconds = stalled_seconds
        self._monotonic = monotonic
        self._moved_at = monotonic()
        self._has_started = False
        self._is_stopping = False
        self._is_unreachable = False
        self._listener = ""
        self._jumped_at: float | None = None
        self._hindered: dict[str, dict[str, None]] = {"paused": {}, "down": {}, "duty": {}}

    def subscribe(self, events: Events) -> Callable[[], None]:
        return events.subscribe(self._note, *_NOTED)

    def is_live(self) -> bool:
        return self._liveness().verdict is not Verdict.UNHEALTHY

    def is_ready(self) -> bool:
        return all(check.verdict is not Verdict.UNHEALTHY for check in self.checks())

    def verdict(self) -> Verdict:
        found = {check.verdict for check in self.checks()}
        return next(v for v in (Verdict.UNHEALTHY, Verdict.DEGRADED, Verdict.HEALTHY) if v in found)

    def checks(self) -> list[Check]:
        return [
            self._liveness(),
            check("started", self._has_started and not self._is_stopping, Verdict.UNHEALTHY, self._phase()),
            check("database", not self._is_unreachable, Verdict.UNHEALTHY, "the database does not answer"),
            check("destinations", not self._hindered["down"], Verdict.DEGRADED, self._named("down", "down")),
            check("pauses", not self._hindered["paused"], Verdict.DEGRADED, self._named("paused", "paused")),
            check("duties", not self._hindered["duty"], Verdict.DEGRADED, self._named("duty", "failed")),
            check("clock", not self._has_jumped(), Verdict.DEGRADED, "the database's clock jumped within a day"),
            check("doorbell", not self._listener, Verdict.DEGRADED, self._listener),
        ]

    def _has_jumped(self) -> bool:
        return self._jumped_at is not None and self._monotonic() - self._jumped_at < JUMP_SHOWN_SECONDS

    def _liveness(self) -> Check:
        still_seconds = self._monotonic() - self._moved_at
        moves = self._is_stopping or still_seconds <= self._stalled_seconds  # a stop has its own end
        return check("loop", moves, Verdict.UNHEALTHY, f"the loop has not gone round for {still_seconds:.0f} s")

    def _phase(self) -> str:
        return "it is stopping" if self._is_stopping else "it has not registered yet"

    def _named(self, what: str, said: str) -> str:
        return f"{said}: {', '.join(self._hindered[what])}"

    def _note(self, name: str, values: Mapping[str, Any]) -> None:
        if name in _MOVES:
            self._moved_at = self._monotonic()
        match name:
            case "relay.started":
                self._has_started = True
            case "relay.stopping":
                self._is_stopping = True
            case "relay.unreachable" | "claim.stop" | "heartbeat.stop":
                self._is_unreachable = name == "relay.unreachable"
            case "relay.clock_jumped":
                self._jumped_at = self._monotonic()
            case "listener.deaf" | "listener.reconnecting":
                self._listener = "it does not hear the doorbell, and polls"
            case "listener.listening":
                self._listener = ""
            case _ if name in _HINDERS:
                what, label = _HINDERS[name]
                self._hindered[what][str(values[label])] = None
            case _ if name in _HELPS:
                what, label = _HELPS[name]
                self._hindered[what].pop(str(values[label]), None)


_MOVES: Final = frozenset({"relay.started", "relay.looked", "relay.unreachable"})
_HINDERS: Final = {
    "destination.paused": ("paused", "destination"),
    "breaker.opened": ("down", "destination"),
    "duty.failed": ("duty", "duty"),
}
_HELPS: Final = {
    "destination.resumed": ("paused", "destination"),
    "breaker.recovered": ("down", "destination"),
    "duty.stop": ("duty", "duty"),
}
_NOTED: Final = (
    *_MOVES,
    "relay.stopping",
    "relay.clock_jumped",
    "claim.stop",
    "heartbeat.stop",
    "listener.listening",
    "listener.deaf",
    "listener.reconnecting",
    *_HINDERS,
    *_HELPS,
)


def check(name: str, is_well: bool, otherwise: Verdict, reason: str) -> Check:
    return Check(name, Verdict.HEALTHY) if is_well else Check(name, otherwise, reason)
