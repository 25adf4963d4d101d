"""When to look again at a destination that had nothing (G-08). Pure.

Short steps right after it ran dry, when the next message is likeliest (and a producer that began before may commit);
then the poll interval, which alone always suffices. The doorbell and the end of an ordered message make it due at once;
freed room does not, because it makes no message.
"""

from typing import Final

STEPS_SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.2)
HELD_BACK_SECONDS: Final = 0.05  # a rate gives a few at a time then, rather than one
# Soon where another claim held the row; then for longer than the second in which a rate may let nothing out.
HELD_BACK_STEPS_SECONDS: Final = (0.01, 0.025, *[HELD_BACK_SECONDS] * 22, 0.1, 0.2)


class PollSchedule:
    """Times are monotonic."""

    def __init__(self, poll_seconds: float) -> None:
        self._poll_seconds = poll_seconds
        self._empty = 0
        self._held_back = 0
        self._called_at = 0.0
        self.look_at = 0.0  # not before

    def is_due(self, now: float) -> bool:
        return now >= self.look_at

    def found_something(self) -> None:
        self._empty = 0
        self.look_at = 0.0

    def found_all(self, now: float, *, asked_at: float) -> None:
        """There was something, and no more; what comes next will ring."""
        self._empty = 0
        self.found_nothing(now, asked_at=asked_at)

    def make_due(self, now: float) -> None:
        """Also again after a look that is under way: it may have begun too early."""
        self._called_at = now
        self.look_at = 0.0

    def held_back(self, now: float, *, found: bool, asked_at: float) -> None:
        """More waits than its limits let out. found: something went."""
        self._empty = 0
        if found:
            self._held_back = 0
            step = HELD_BACK_SECONDS
        else:
            steps = HELD_BACK_STEPS_SECONDS
            step = steps[self._held_back] if self._held_back < len(steps) else self._poll_seconds
            self._held_back += 1
        if self._called_at < asked_at:
            self.look_at = now + min(step, self._poll_seconds)

    def found_nothing(self, now: float, *, asked_at: float | None = None) -> None:
        step = STEPS_SECONDS[self._empty] if self._empty < len(STEPS_SECONDS) else self._poll_seconds
        self._empty += 1
        self._held_back = 0
        if asked_at is None or self._called_at < asked_at:
            self.look_at = now + min(step, self._poll_seconds)
