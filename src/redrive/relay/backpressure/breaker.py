"""The circuit breaker of one destination in one relay (G-25). Pure: counts, and says when to open.

What counts is whether the destination answered. `Retryable(destination_down=True)` and `Unknown` (a timeout, a lost
reply) are no answer; "no" and "later" are. What we did ourselves (a bug, a stop) does not count. The state for all
relays is in the database: `verbs/breaker.sql`.
"""

from collections import deque
from typing import Any, Final

from redrive.answers import Answer, Retryable, Unknown
from redrive.policy import Breaker
from redrive.ports import Outcome

# Codes of attempts that we ended ourselves, or that never reached the destination.
OURS: Final = frozenset({"CUT_OFF", "CANCELLED", "INTERRUPTED", "COMPLETE_ROLLED_BACK", "VALIDATE_TIMEOUT"})
# A lookup that could not tell did answer, unless it failed like this.
UNANSWERED_LOOKUPS: Final = frozenset({"LOOKUP_TIMEOUT", "LOOKUP_FAILED"})


def answered(answer: Answer | None, breaker: Breaker) -> bool | None:
    """None: nothing was asked of it, or we do not know."""
    code = getattr(answer, "code", None)
    if answer is None or getattr(answer, "bug", False) or code in OURS:
        return None
    if code in breaker.codes:
        return False
    if isinstance(answer, Unknown):
        return answer.from_lookup and code not in UNANSWERED_LOOKUPS
    return not (isinstance(answer, Retryable) and answer.destination_down)


def evidence(outcome: Outcome, breaker: Breaker) -> dict[str, Any]:
    """Arguments of the store's `open_breaker` and `open_key`."""
    return {
        "claimed_at": outcome.attempt.claimed_at,
        "code": outcome.settlement.error_class or "",
        "cool_off_seconds": breaker.cool_off_seconds,
        "cool_off_max_seconds": breaker.cool_off_max_seconds,
    }


class Count:
    """Sends of one destination since its breaker last opened."""

    def __init__(self, breaker: Breaker) -> None:
        self._breaker = breaker
        self._in_a_row = 0
        self._last: deque[bool] = deque(maxlen=breaker.window)
        self._failed = 0  # of the last ones

    def saw(self, *, answered: bool) -> bool:
        """True when the breaker shall open."""
        if len(self._last) == self._breaker.window:
            self._failed -= not self._last[0]
        self._last.append(answered)
        if answered:
            self._in_a_row = 0
            return False
        self._failed += 1
        self._in_a_row += 1
        full = len(self._last) == self._breaker.window
        return self._in_a_row >= self._breaker.failures or (
            full and self._failed >= self._breaker.share * self._breaker.window
        )

    def start_again(self) -> None:
        self._in_a_row = self._failed = 0
        self._last.clear()
