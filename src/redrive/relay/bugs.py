"""The bug breaker (G-10): ten unclassified exceptions in a row on different messages stop the line.

A poisoned payload parks itself; a poisoned deploy would empty the whole queue into the dead letters. A success between
starts the count again. A handler that returns what cannot be kept has had its effect, and would have it with every
other message too, so the first one stops the line. Counts live in this process, the pause in the database.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from redrive.answers import ADVANCE_UNDECLARED, RETURN_INVALID, UNCLASSIFIED

BUGS_IN_A_ROW: Final = 10
REASON: Final = "bug"


class BugBreaker:
    """One destination in one relay."""

    def __init__(self) -> None:
        self._messages: set[UUID] = set()
        self._returns_nonsense = False

    def saw_bug(self, message: UUID, code: str = UNCLASSIFIED) -> bool:
        """True when this one is the tenth, or the first of a handler that returns nonsense: pause the destination."""
        if code in {RETURN_INVALID, ADVANCE_UNDECLARED}:
            first, self._returns_nonsense = not self._returns_nonsense, True
            return first
        self._messages.add(message)
        return len(self._messages) == BUGS_IN_A_ROW

    def paused(self) -> None:
        """Resumed, it counts from the beginning."""
        self._messages.clear()
        self._returns_nonsense = False

    def saw_success(self) -> None:
        self._messages.clear()
