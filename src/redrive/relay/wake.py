"""When to look again at a destination that had nothing (G-08). Pure.

Short steps right after it ran dry, because the next message is likeliest then (and a producer that began before may
commit now); then the poll interval. The poll alone always suffices. Room that becomes free is no reason to look sooner:
it makes no message.
"""

from __future__ import annotations

from typing import Final

STEPS_SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.2)


class Wake:
    """Counts the empty looks at one destination. Times are the relay's monotonic clock."""

    def __init__(self, poll_seconds: float) -> None:
        self._poll_seconds = poll_seconds
        self._empty = 0
        self.look_at = 0.0  # not before

    def is_due(self, now: float) -> bool:
        return now >= self.look_at

    def found_something(self) -> None:
        self._empty = 0
        self.look_at = 0.0

    def found_nothing(self, now: float) -> None:
        step = STEPS_SECONDS[self._empty] if self._empty < len(STEPS_SECONDS) else self._poll_seconds
        self._empty += 1
        self.look_at = now + min(step, self._poll_seconds)
