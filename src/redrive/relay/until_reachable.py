"""A database that is away is waited for: a call is made again until it comes through, and each failure is told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from redrive.events import Events
from redrive.ports import Clock, TransientFailure

UNREACHABLE_SECONDS: Final = 0.5

Result = TypeVar("Result")


class UntilReachable:
    """For verbs that must happen sooner or later, such as handing back a claim."""

    def __init__(self, clock: Clock, events: Events) -> None:
        self._clock = clock
        self._events = events

    async def until_reached(self, call: Callable[[], Awaitable[Result]]) -> Result:
        while True:
            try:
                return await call()
            except TransientFailure:
                self._events.emit("relay.unreachable", during="verb", tries=0)
                await self._clock.sleep(UNREACHABLE_SECONDS)
