"""Places that destinations share, so that one whose transactions hang leaves room to the others (G-31).

A destination takes another place only while more are free than it has: one alone has half of them, a second one half of
what is left.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FairPlaces:
    def __init__(self, places: int) -> None:
        self._places = places
        self._taken: Counter[str] = Counter()

    def may_take(self, destination: str) -> bool:
        return self._places - self._taken.total() > self._taken[destination]

    def take(self, destination: str) -> None:
        self._taken[destination] += 1

    def give_back(self, destination: str) -> None:
        self._taken[destination] -= 1
        if not self._taken[destination]:
            del self._taken[destination]


class FairQueue:
    """Waits for a place: within a destination in order, and destinations take turns."""

    def __init__(self, places: int) -> None:
        self._places = FairPlaces(places)
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # whose turn was longest ago is first

    @asynccontextmanager
    async def place(self, destination: str) -> AsyncIterator[None]:
        await self._take(destination)
        try:
            yield
        finally:
            self._give_back(destination)

    async def _take(self, destination: str) -> None:
        if destination not in self._waiting and self._places.may_take(destination):
            self._places.take(destination)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(destination, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was given its place at that moment
                self._give_back(destination)
            raise

    def _give_back(self, destination: str) -> None:
        self._places.give_back(destination)
        for waiting in list(self._waiting):
            while waiting in self._waiting and self._places.may_take(waiting):
                self._next(waiting)

    def _next(self, destination: str) -> None:
        turns = self._waiting.pop(destination)
        turn = turns.popleft()
        if turns:
            self._waiting[destination] = turns
        if not turn.done():
            self._places.take(destination)
            turn.set_result(None)
