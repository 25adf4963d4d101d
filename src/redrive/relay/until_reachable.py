"""Calls the database again until it can be reached; each failure is an event."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from redrive.ports import TransientFailure
from redrive.relay.context import RelayContext

UNREACHABLE_SECONDS: Final = 0.5

Result = TypeVar("Result")


async def until_reachable(
    context: RelayContext,
    call: Callable[[], Awaitable[Result]],
    *,
    during: str = "verb",
    pauses: Sequence[float] = (UNREACHABLE_SECONDS,),
) -> Result:
    """For what must happen sooner or later, such as handing back a claim. pauses: seconds, the last one for good."""
    tries = 0
    while True:
        try:
            return await call()
        except TransientFailure:
            context.events.emit("relay.unreachable", during=during, tries=tries)
            await context.clock.sleep(pauses[min(tries, len(pauses) - 1)])
            tries += 1
