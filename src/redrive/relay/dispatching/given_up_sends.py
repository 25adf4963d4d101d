"""Money sends that were given up and still run in this process: until they end, "absent" says nothing.

A handler that ignores its cancellation, or the thread of a `def`, may still have its effect. `lookup_after_seconds`
count from the end of that send.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from redrive.message import MessageId
from redrive.ports import Clock

STILL_SENDS_SECONDS: Final = 1.0  # between two looks at a send that was given up and still runs
GIVEN_UP_MAX: Final = 10_000  # of so many is remembered when they ended


class GivenUpSends:
    """quiet_seconds: how long ago the thread of a message's handler ended; 0 = it runs, None = there was none."""

    def __init__(
        self, *, clock: Clock, lookup_after_seconds: float, quiet_seconds: Callable[[MessageId], float | None]
    ) -> None:
        self._clock = clock
        self._lookup_after_seconds = lookup_after_seconds
        self._quiet_seconds = quiet_seconds
        self._sending: Counter[MessageId] = Counter()
        self._given_up: set[MessageId] = set()  # abandoned, and still running
        self._ended: dict[MessageId, float] = {}

    @contextmanager
    def sending(self, id: MessageId) -> Iterator[None]:
        self._sending[id] += 1
        try:
            yield
        finally:
            self._sending[id] -= 1
            if not self._sending[id]:
                del self._sending[id]
                self._note_end(id)

    def give_up(self, id: MessageId) -> None:
        if self._sending[id]:
            self._given_up.add(id)

    def wait_seconds(self, id: MessageId) -> float:
        """For how long "absent" says nothing yet."""
        ended, in_thread = self._ended.get(id), self._quiet_seconds(id)
        quiet = [] if ended is None else [self._clock.monotonic() - ended]
        quiet += [] if in_thread is None else [in_thread]
        if self._sending[id] or 0.0 in quiet:
            return max(self._lookup_after_seconds, STILL_SENDS_SECONDS)
        return max([0.0, *(self._lookup_after_seconds - seconds for seconds in quiet)])

    def _note_end(self, id: MessageId) -> None:
        if id not in self._given_up:
            return
        self._given_up.discard(id)
        self._ended.pop(id, None)
        self._ended[id] = self._clock.monotonic()
        if len(self._ended) > GIVEN_UP_MAX:
            del self._ended[next(iter(self._ended))]
