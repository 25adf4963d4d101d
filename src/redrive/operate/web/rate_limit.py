"""Rate limit per minute by name (an address, a user), in memory and bounded (docs/dependencies.md: why no library)."""

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

WINDOW_SECONDS: Final = 60.0
NAMES_MAX: Final = 10_000


class RateLimit:
    """At most `most` events a minute for one name."""

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self._most = most
        self._clock = clock
        self._times: OrderedDict[str, deque[float]] = OrderedDict()

    def exhausted(self, name: str) -> bool:
        return len(self._recent(name)) >= self._most

    def count(self, name: str) -> bool:
        recent = self._recent(name)
        if len(recent) >= self._most:
            return False
        recent.append(self._clock())
        return True

    def _recent(self, name: str) -> deque[float]:
        times = self._times.setdefault(name, deque())
        self._times.move_to_end(name)
        while times and times[0] <= self._clock() - WINDOW_SECONDS:
            times.popleft()
        if len(self._times) > NAMES_MAX:
            self._times.popitem(last=False)
        return times
