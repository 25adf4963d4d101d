"""Handlers of a drain use the test's own connection: one at a time, and never beside a verb of the relay.

In production a handler has its own connection. In a test the relay's savepoints are on the same one: two that
overlap would release each other's. Connections that Django keeps by thread are lent to the threads of `def`
handlers.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from redrive.app import App, Destination
from redrive.message import Attempt
from redrive.ports import NotBegun
from redrive.store.runtime.one_connection import is_django
from redrive.transports.functions import FunctionTransport


class InTurn:
    """A transport that waits for its turn."""

    def __init__(self, transport: Any, turn: asyncio.Lock) -> None:
        self._transport = transport
        self._turn = turn
        self.send = self._waiting(transport.send)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._transport, name)
        return self._waiting(found) if name in {"validate", "lookup"} and found is not None else found

    def _waiting(self, function: Callable[[Attempt], Awaitable[Any]]) -> Callable[[Attempt], Awaitable[Any]]:
        async def run(attempt: Attempt) -> Any:
            try:
                await self._turn.acquire()
            except asyncio.CancelledError:
                raise NotBegun from None
            try:
                return await function(attempt)
            finally:
                self._turn.release()

        return run


def in_turn(destinations: Mapping[str, Destination], turn: asyncio.Lock) -> dict[str, Destination]:
    return {name: replace(one, transport=InTurn(one.transport, turn)) for name, one in destinations.items()}


@contextmanager
def lent_to_threads(conn: Any, app: App) -> Iterator[None]:
    """The threads of `def` handlers have the connections of this thread."""
    if not is_django(conn):
        yield
        return
    from redrive.django.lending import lent

    functions = [one.transport for one in app.destinations.values() if isinstance(one.transport, FunctionTransport)]
    before = [one.around for one in functions]
    with lent() as around:
        for one in functions:
            one.around = around
        try:
            yield
        finally:
            for one, its_own in zip(functions, before, strict=True):
                one.around = its_own
