"""The health of a worker, judged by its events.

live: each consumer's loop went round, or a message of it ended, within `stalled_seconds` and its handler's timeout.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from redrive.events import Events
from redrive.operate.observe.health import STALLED_SECONDS, Check, Health, Verdict, check

_ENDS: Final = frozenset({"consumer.processed", "consumer.deferred", "consumer.seen", "consumer.given_back"})
_COMMITS: Final = frozenset({"consumer.processed", "consumer.deferred", "consumer.seen", "consumer.not_deferrable"})
_NOTED: Final = (
    *_ENDS,
    "consumer.started",
    "consumer.looked",
    "consumer.received",
    "consumer.source_failed",
    "consumer.unreachable",
    "consumer.not_deferrable",
    "consumer.stopping",
)


@dataclass(eq=False)
class _Seen:
    """ended_at: when a message ended last, or when the first one came into an empty hand."""

    limit_seconds: float
    moved_at: float
    ended_at: float
    in_hand: int = 0
    is_connected: bool = False
    is_unreachable: bool = False
    is_stopping: bool = False


class WorkerHealth(Health):
    """timeouts: seconds that one call of each consumer's handler may take."""

    def __init__(
        self,
        timeouts: Mapping[str, float],
        *,
        stalled_seconds: float = STALLED_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(stalled_seconds=stalled_seconds, monotonic=monotonic)
        now = monotonic()
        self._seen = {name: _Seen(stalled_seconds + seconds, now, now) for name, seconds in timeouts.items()}

    def subscribe(self, events: Events) -> Callable[[], None]:
        return events.subscribe(self._note, *_NOTED)

    def checks(self) -> list[Check]:
        stopping = any(seen.is_stopping for seen in self._seen.values())
        away = self._those(lambda seen: not seen.is_connected)
        return [
            self._liveness(),
            check("started", not stopping, Verdict.UNHEALTHY, "it is stopping"),
            check("sources", not away, Verdict.UNHEALTHY, f"not connected to the source of: {away}"),
            check("database", not self._unreachable(), Verdict.UNHEALTHY, "the database does not answer"),
            self._messages(),
        ]

    def _unreachable(self) -> bool:
        return any(seen.is_unreachable for seen in self._seen.values())

    def _liveness(self) -> Check:
        now = self._monotonic()
        still = self._those(lambda seen: not seen.is_stopping and now - seen.moved_at > seen.limit_seconds)
        return check("loop", not still, Verdict.UNHEALTHY, f"the loop does not go round of: {still}")

    def _messages(self) -> Check:
        now = self._monotonic()
        stuck = self._those(lambda seen: seen.in_hand > 0 and now - seen.ended_at > seen.limit_seconds)
        return check("messages", not stuck, Verdict.UNHEALTHY, f"messages are in hand and none ends of: {stuck}")

    def _those(self, are: Callable[[_Seen], bool]) -> str:
        return ", ".join(name for name, seen in self._seen.items() if are(seen))

    def _note(self, name: str, values: Mapping[str, Any]) -> None:
        seen = self._seen.get(values["consumer"])
        if seen is None:
            return
        seen.moved_at = self._monotonic()
        if name in _ENDS:
            seen.in_hand, seen.ended_at = seen.in_hand - 1, seen.moved_at
        if name in _COMMITS:
            seen.is_unreachable = False
        match name:
            case "consumer.received":
                seen.ended_at = seen.ended_at if seen.in_hand else seen.moved_at
                seen.in_hand += values["count"]
            case "consumer.looked" | "consumer.source_failed":
                seen.is_connected = name == "consumer.looked"
            case "consumer.unreachable":
                seen.is_unreachable = True
            case "consumer.stopping":
                seen.is_stopping = True
