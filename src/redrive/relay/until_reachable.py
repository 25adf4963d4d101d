"""Calls the database again until it can be reached; each failure is an event."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from redrive.ports import TransientFailure
from redrive.relay.context import RelayContext

UNREACHABLE_SECONDS: Final = 0.5

Result = TypeVar("Result")


async def until_reachable(context: RelayContext, call: Callable[[], Awaitable[Result]]) -> Result:
    """For verbs that must happen sooner or later, such as handing back a claim."""
    while True:
        try:
            return await call()
        except TransientFailure:
            context.events.emit("relay.unreachable", during="verb", tries=0)
            await context.clock.sleep(UNREACHABLE_SECONDS)
