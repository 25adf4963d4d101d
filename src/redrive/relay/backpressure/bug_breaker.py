"""The bug breaker (G-10): ten unclassified exceptions in a row on different messages pause the destination.

One bad payload parks itself; a bad deploy would empty the whole queue into the dead letters. A success resets the
count. A return value that cannot be kept comes after the effect and would come with every message, so the first one
pauses. Counts live in this process, the pause in the database.
"""

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
    def __init__(self) -> None:
        self._messages: set[UUID] = set()
        self._returns_nonsense = False

    def saw_bug(self, message: UUID, code: str = UNCLASSIFIED) -> bool:
        """True: pause the destination."""
        if code in {RETURN_INVALID, ADVANCE_UNDECLARED}:
            first, self._returns_nonsense = not self._returns_nonsense, True
            return first
        self._messages.add(message)
        return len(self._messages) == BUGS_IN_A_ROW

    def paused(self) -> None:
        """After a resume it counts from zero."""
        self._messages.clear()
        self._returns_nonsense = False

    def saw_success(self) -> None:
        self._messages.clear()


class BugsOfKeys:
    """Bugs of a destination with limit keys: those of one key pause that key, those of several keys the destination.

    A bad deploy fails for all tenants or hosts, not for one. Where no message names a tenant, keys alone decide.
    """

    def __init__(self) -> None:
        self._seen: dict[UUID, tuple[str, str]] = {}

    def saw_bug(self, message: UUID, key: str, tenant: str) -> bool:
        """True: pause the whole destination."""
        self._seen[message] = (key, tenant)
        if len(self._seen) > SEEN_MAX:
            del self._seen[next(iter(self._seen))]
        keys = {key for key, _ in self._seen.values()}
        tenants = {tenant for _, tenant in self._seen.values()}
        several = len(tenants) >= TENANTS_MIN or tenants == {DEFAULT_TENANT}
        return len(self._seen) >= BUGS_IN_A_ROW and len(keys) >= KEYS_MIN and several

    def saw_success(self) -> None:
        self._seen.clear()
