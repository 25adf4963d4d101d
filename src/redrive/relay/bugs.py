"""The bug breaker (G-10): ten unclassified exceptions in a row on different messages stop the line.

A poisoned payload parks itself; a poisoned deploy would empty the whole queue into the dead letters. A success between
starts the count again. Counts live in this process, the pause in the database.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

BUGS_IN_A_ROW: Final = 10
REASON: Final = "bug"


class BugBreaker:
    """One destination in one relay."""

    def __init__(self) -> None:
        self._messages: set[UUID] = set()

    def saw_bug(self, message: UUID) -> bool:
        """True when this one is the tenth: pause the destination."""
        self._messages.add(message)
        return len(self._messages) == BUGS_IN_A_ROW

    def saw_success(self) -> None:
        self._messages.clear()
