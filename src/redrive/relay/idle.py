"""Whether a destination has run dry, and whether producers are to ring (G-08). Pure.

A NOTIFY slows all producers down (verbs/doorbell.sql), so they are asked to ring only for destinations that have run
dry, and told to stop when work keeps coming: looks that find something every time will find the next one too. There is
hysteresis in both directions, because every change of mind is a write. Full claims alone are no sign of load: ringing
slows producers down until claims are not full any more; with one slot, every claim is full.
"""

from __future__ import annotations

from typing import Final

DRY_AFTER: Final = 2  # empty looks in a row
BUSY_AFTER_MESSAGES: Final = 100  # with no empty look between them
BUSY_AFTER_FULL: Final = 8  # looks that found as much as there was room for, with no other between them

MARGIN_SECONDS: Final = 5.0  # on top of the poll: a relay that died is rung for so long
SPARE_SECONDS: Final = 1.0  # before the time is over, it is asked for anew


class Idleness:
    """Of one destination in one relay."""

    def __init__(self) -> None:
        self.is_dry = False
        self._empty = 0
        self._full = 0
        self._messages = 0

    def found(self, messages: int, *, full: bool) -> None:
        self._empty = 0
        self._full = self._full + 1 if full else 0
        self._messages += messages
        if self._messages >= BUSY_AFTER_MESSAGES or self._full >= BUSY_AFTER_FULL:
            self.is_dry = False

    def held_back(self) -> None:
        """There is work that may not go yet: nobody need ring for more of it."""
        self._empty = self._full = self._messages = 0
        self.is_dry = False

    def found_nothing(self) -> None:
        self._full = self._messages = 0
        self._empty += 1
        if self._empty >= DRY_AFTER:
            self.is_dry = True


class Asked:
    """What producers have been asked to ring for, and until when (our monotonic clock)."""

    def __init__(self, poll_seconds: float) -> None:
        self.seconds = poll_seconds + MARGIN_SECONDS
        self._needed_seconds = poll_seconds + SPARE_SECONDS
        self._for: frozenset[str] = frozenset()
        self._until = 0.0

    def is_for(self, destination: str) -> bool:
        return destination in self._for

    def is_outdated(self, dry: frozenset[str], now: float) -> bool:
        """Whether it must be written again: others have run dry, or the time does not last until the next look."""
        return dry != self._for or (bool(dry) and self._until - now < self._needed_seconds)

    def asked(self, dry: frozenset[str], now: float) -> frozenset[str]:
        """It is written now; returns those that are new: nobody rang for what came before."""
        news = dry if now >= self._until else dry - self._for
        self._for, self._until = dry, now + self.seconds
        return news

    def forget(self) -> None:
        """It may not have been written, or be lost: the table does not survive a crash of the server."""
        self._for, self._until = frozenset(), 0.0
