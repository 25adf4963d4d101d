"""Inline mode: what is enqueued on a connection is delivered before `enqueue` returns, in the same transaction.

    with inline(conn, app) as done:
        sign_up(conn, "ada@example.com")    # the welcome mail is sent here

For tests that want to see the effect where they see the cause. It is a drain after every enqueue; production has no
hook for it, so the function that carries an enqueue to its driver is replaced for as long as the block runs. What
differs from production is said in docs/how-to/test-your-application.md.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest.mock import patch

from redrive.app import App
from redrive.message import Receipt
from redrive.produce import drivers
from redrive.produce.driver import Within
from redrive.produce.protocol import Steps
from redrive.store.runtime.one_connection import apsycopg_below, is_async, psycopg_below
from redrive.testing.clock import ManualClock
from redrive.testing.draining import Drained, adrain_into, drain_into

T = TypeVar("T")


@contextmanager
def inline(conn: Any, app: App, *, clock: ManualClock | None = None) -> Iterator[Drained]:
    """`with`, also around code that awaits. Yields what became of the messages so far."""
    mode = _Inline(conn, app, clock)
    with patch.object(drivers, "run", mode.run), patch.object(drivers, "arun", mode.arun):
        yield mode.drained


class _Inline:
    """Runs statements as before, then delivers. The running drain finds what is enqueued meanwhile."""

    def __init__(self, conn: Any, app: App, clock: ManualClock | None) -> None:
        self._conn, self._app, self._clock = conn, app, clock
        self._run, self._arun = drivers.run, drivers.arun  # of an outer block, perhaps
        self._delivering = False
        self.drained = Drained()

    def run(self, conn: Any, steps: Steps[T], within: Within = Within.OPEN) -> T:
        result = self._run(conn, steps, within)
        if self._is_news(result) and _is_same(conn, self._conn):
            with self._once():
                drain_into(self.drained, conn, self._app, self._clock)
        return result

    async def arun(self, conn: Any, steps: Steps[T], within: Within = Within.OPEN) -> T:
        result = await self._arun(conn, steps, within)
        if self._is_news(result) and await _ais_same(conn, self._conn):
            with self._once():
                await adrain_into(self.drained, conn, self._app, self._clock)
        return result

    @contextmanager
    def _once(self) -> Iterator[None]:
        self._delivering = True
        try:
            yield
        finally:
            self._delivering = False

    def _is_news(self, result: object) -> bool:
        first = result[0] if isinstance(result, list) and result else result
        return isinstance(first, Receipt) and not self._delivering


def _is_same(one: Any, other: Any) -> bool:
    """By the connection below: a session and its connection are the same one."""
    return one is other or (not is_async(other) and psycopg_below(one) is psycopg_below(other))


async def _ais_same(one: Any, other: Any) -> bool:
    return one is other or await apsycopg_below(one) is await apsycopg_below(other)
