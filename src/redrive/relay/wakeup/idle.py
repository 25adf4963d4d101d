"""Whether a destination has run dry, and whether producers are to ring (G-08). Pure.

A NOTIFY slows all producers down (verbs/doorbell.sql), so they ring only for what has run dry, and stop when work keeps
coming. What counts is how much comes: a hundred a second are found one by one, each by a ring, and polling would find
each late. Every change of mind is a write, hence the hysteresis. Full claims alone are no sign of load: ringing slows
producers until claims are not full, and with one slot every claim is full.
"""

from typing import Final

DRY_AFTER: Final = 2  # empty looks in a row, or one, where little came since the one before
DRY_BELOW: Final = 250.0  # messages a second
BUSY_AFTER_MESSAGES: Final = 100  # with no empty look between them, and within
BUSY_WITHIN_SECONDS: Final = 0.2
BUSY_AFTER_FULL: Final = 8  # looks that found as much as there was room for, with no other between them

MARGIN_SECONDS: Final = 5.0  # on top of the poll: a relay that died is rung for so long
SPARE_SECONDS: Final = 1.0  # before the time is over, it is asked for anew


class Idleness:
    def __init__(self) -> None:
        self.is_dry = False
        self._empty = 0
        self._full = 0
        self._messages = 0  # in the window that began then
        self._began: float | None = None
        self._since_empty = 0
        self._empty_at: float | None = None

    def found(self, messages: int, now: float, *, full: bool) -> None:
        self._empty = 0
        self._full = self._full + 1 if full else 0
        if self._began is None or now - self._began > BUSY_WITHIN_SECONDS:
            self._began, self._messages = now, 0
        self._messages += messages
        self._since_empty += messages
        if self._messages >= BUSY_AFTER_MESSAGES or self._full >= BUSY_AFTER_FULL:
            self.is_dry = False

    def held_back(self) -> None:
        """There is work that may not go yet: no producer has to ring for more."""
        self._empty = 0
        self._forget()
        self._empty_at = None
        self.is_dry = False

    def found_nothing(self, now: float) -> None:
        self._empty += 1
        if self._empty >= DRY_AFTER or self._came_little(now):
            self.is_dry = True
        self._forget()
        self._empty_at = now

    def _came_little(self, now: float) -> bool:
        return self._empty_at is not None and self._since_empty < DRY_BELOW * (now - self._empty_at)

    def _forget(self) -> None:
        self._full = self._messages = self._since_empty = 0
        self._began = None


class Asked:
    """What producers have been asked to ring for, and until when (monotonic)."""

    def __init__(self, poll_seconds: float) -> None:
        self.seconds = poll_seconds + MARGIN_SECONDS
        self._needed_seconds = poll_seconds + SPARE_SECONDS
        self._for: frozenset[str] = frozenset()
        self._until = 0.0

    def is_for(self, destination: str) -> bool:
        return destination in self._for

    def is_outdated(self, dry: frozenset[str], now: float) -> bool:
        """Others have run dry, or the time does not last until the next look."""
        return dry != self._for or (bool(dry) and self._until - now < self._needed_seconds)

    def asked(self, dry: frozenset[str], now: float) -> frozenset[str]:
        """Written; returns the new ones: what came before did not ring."""
        news = dry if now >= self._until else dry - self._for
        self._for, self._until = dry, now + self.seconds
        return news

    def forget(self) -> None:
        """It may not have been written, or be lost: the table does not survive a crash of the server."""
        self._for, self._until = frozenset(), 0.0
