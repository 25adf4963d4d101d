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
KEYS_MIN: Final = 3
TENANTS_MIN: Final = 2
SEEN_MAX: Final = 100
DEFAULT_TENANT: Final = "default"


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


class BugsOfKeys:
    """The bugs in a row of a destination with limit keys: one key's pause that key, those of many the destination.

    A poisoned deploy fails for all; one tenant's messages, or one host's, are no sign of it. Where no message
    names a tenant, the keys alone tell.
    """

    def __init__(self) -> None:
        self._seen: dict[UUID, tuple[str, str]] = {}

    def saw_bug(self, message: UUID, key: str, tenant: str) -> bool:
        """True when the whole destination is to be paused."""
        self._seen[message] = (key, tenant)
        if len(self._seen) > SEEN_MAX:
            del self._seen[next(iter(self._seen))]
        keys = {key for key, _ in self._seen.values()}
        tenants = {tenant for _, tenant in self._seen.values()}
        several = len(tenants) >= TENANTS_MIN or tenants == {DEFAULT_TENANT}
        return len(self._seen) >= BUGS_IN_A_ROW and len(keys) >= KEYS_MIN and several

    def saw_success(self) -> None:
        self._seen.clear()
