"""How far the consumers of a worker are, by its events: for its heartbeat (`heartbeat.py`) and for its health."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from redrive.events import Events

_ENDS: Final = frozenset({"consumer.processed", "consumer.deferred", "consumer.seen", "consumer.given_back"})
_COMMITS: Final = frozenset({"consumer.processed", "consumer.deferred", "consumer.seen", "consumer.reserved"})
_NOTED: Final = (
    *_ENDS,
    "consumer.started",
    "consumer.looked",
    "consumer.received",
    "consumer.source_failed",
    "consumer.unreachable",
    "consumer.reserved",
    "consumer.stopping",
)


@dataclass(eq=False)
class Progress:
    """One consumer. Times are of the monotonic clock.

    moved_at: when its loop last went round. waits_since: since when the messages in hand wait for one of them to end.
    ended_at: when one last ended; None = none has. is_connected: whether its source answered last; None = not asked
    yet. reserved_at: when an event was last found that can be neither processed nor deferred; it is tried again and
    again. counts: messages since the start, by the last word of the event.
    """

    moved_at: float
    waits_since: float
    ended_at: float | None = None
    in_hand: int = 0
    reserved_at: float = -math.inf
    is_connected: bool | None = None
    is_unreachable: bool = False
    is_stopping: bool = False
    counts: Counter[str] = field(default_factory=Counter)


class WorkerProgress:
    """of: the progress of each consumer, by its name."""

    def __init__(self, consumers: Iterable[str], *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self.of = {name: Progress(monotonic(), monotonic()) for name in consumers}

    def subscribe(self, events: Events) -> Callable[[], None]:
        return events.subscribe(self._note, *_NOTED)

    def _note(self, name: str, values: Mapping[str, Any]) -> None:
        seen = self.of.get(values["consumer"])
        if seen is None:
            return
        seen.moved_at = now = self._monotonic()
        seen.counts[name.removeprefix("consumer.")] += values["count"] if name == "consumer.received" else 1
        if name in _ENDS:
            seen.in_hand, seen.ended_at, seen.waits_since = seen.in_hand - 1, now, now
        if name in _COMMITS:
            seen.is_unreachable = False
        match name:
            case "consumer.received":
                seen.waits_since = seen.waits_since if seen.in_hand else now
                seen.in_hand += values["count"]
            case "consumer.looked" | "consumer.source_failed":
                seen.is_connected = name == "consumer.looked"
            case "consumer.reserved":
                seen.reserved_at = now
            case "consumer.unreachable":
                seen.is_unreachable = True
            case "consumer.stopping":
                seen.is_stopping = True
