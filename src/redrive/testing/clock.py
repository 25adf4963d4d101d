"""A clock that stands still until it is told to move.

For the tests of an application it says how much later it is: `redrive.testing.drain(conn, app, clock=clock)`. For
tests of the engine it implements `redrive.ports.Clock`: `sleep` waits for `advance`, never for real time. Sleepers
wake in the order of their time, then of their sleep.
"""

import asyncio
import heapq
from datetime import timedelta


class ManualClock:
    """Monotonic seconds from `start`; `advance` is the only thing that moves them."""

    def __init__(self, start: float = 0.0) -> None:
        self._start = self._seconds = start
        self._lain_down = 0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def monotonic(self) -> float:
        return self._seconds

    @property
    def advanced_seconds(self) -> float:
        """By how much it was moved since it was made."""
        return self._seconds - self._start

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lain_down += 1
        heapq.heappush(self._sleepers, (self._seconds + seconds, self._lain_down, woken))
        await woken

    @property
    def sleepers(self) -> int:
        return sum(not woken.done() for _, _, woken in self._sleepers)

    @property
    def next_wake(self) -> float | None:
        """When the first sleeper is due, in monotonic seconds; None without a sleeper."""
        return min((at for at, _, woken in self._sleepers if not woken.done()), default=None)

    def advance(self, by: float | timedelta) -> None:
        """Moves on by so many seconds and wakes the sleepers that are due; they run at the caller's next await."""
        seconds = by.total_seconds() if isinstance(by, timedelta) else by
        if seconds < 0:
            raise ValueError(f"It was to be advanced by {seconds} seconds; a clock does not go back.")
        self._seconds += seconds
        while self._sleepers and self._sleepers[0][0] <= self._seconds:
            woken = heapq.heappop(self._sleepers)[2]
            if not woken.done():
                woken.set_result(None)
