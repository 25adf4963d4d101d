"""When to look again after a claim that found nothing (G-08). Pure.

Short steps right after going idle, because the next message is likeliest then (and a producer that began before may
commit now); then the poll interval. The poll alone always suffices.
"""

from __future__ import annotations

from typing import Final

STEPS_SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.2)


class Wake:
    """Counts empty looks."""

    def __init__(self, poll_seconds: float) -> None:
        self._poll_seconds = poll_seconds
        self._empty = 0

    def found_something(self) -> None:
        self._empty = 0

    def pause_seconds(self) -> float:
        """How long to wait now, after one more empty look."""
        step = STEPS_SECONDS[self._empty] if self._empty < len(STEPS_SECONDS) else self._poll_seconds
        self._empty += 1
        return min(step, self._poll_seconds)
