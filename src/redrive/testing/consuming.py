"""Consumers inside a drain: events of a `ScriptedSource` are received on the test's own connection.

The inbox row, the handler and what is deferred are those of a worker. The worker's transaction is a savepoint here, and
events are processed one after the other. A consumer with another source is left alone: a drain connects to no broker.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, LiteralString, TypeVar

from redrive.app import App, Destination
from redrive.consume.consumer import Consumer
from redrive.consume.receiving import DatabaseAway, Kind, Receiving
from redrive.consume.sessions import BEGIN, Session, is_async_handler
from redrive.consume.transport import ConsumerTransport
from redrive.errors import UnsupportedConnection
from redrive.ports.sources import Delivery
from redrive.produce import drivers
from redrive.produce.protocol import Steps
from redrive.store.runtime.one_connection import AsyncFace, is_async
from redrive.testing.sources import ScriptedSource

if TYPE_CHECKING:
    import asyncio

    from redrive.testing.draining import Drained

T = TypeVar("T")

_INSTEAD: Final[Mapping[str, tuple[LiteralString, ...]]] = {
    BEGIN: ("SAVEPOINT redrive_event",),
    "COMMIT": ("RELEASE SAVEPOINT redrive_event",),
    "ROLLBACK": ("ROLLBACK TO SAVEPOINT redrive_event", "RELEASE SAVEPOINT redrive_event"),
}


async def consume(drained: Drained, conn: Any, app: App) -> None:
    """Process what waits in the sources, each event once."""
    for consumer in app.consumers.values():
        if isinstance(consumer.source, ScriptedSource) and consumer.source.waiting:
            await _consume(drained, consumer, consumer.source, conn)


def on_connection(destinations: Mapping[str, Destination], conn: Any, app: App) -> dict[str, Destination]:
    """The destinations, with those of consumers on this connection."""
    found = dict(destinations)
    for name, one in destinations.items():
        consumer = app.consumers.get(name)
        if consumer is not None and isinstance(one.transport, ConsumerTransport) and fits(conn, consumer):
            found[name] = replace(one, transport=ConsumerTransport(consumer, SessionsOnConnection(conn, consumer)))
    return found


def fits(conn: Any, consumer: Consumer) -> bool:
    """An `async def` handler is given a synchronous connection to await; a `def` cannot have an asynchronous one."""
    return is_async_handler(consumer.handler) or not is_async(conn)


async def _consume(drained: Drained, consumer: Consumer, source: ScriptedSource, conn: Any) -> None:
    receiving, back = Receiving(consumer, SessionsOnConnection(conn, consumer)), list[Delivery]()
    for delivery in await source.receive(source.waiting):
        try:
            kind = (await receiving.receive(consumer.arrived(delivery))).kind
        except DatabaseAway as away:
            raise away.__cause__ or away from None
        getattr(drained, kind.value).append(delivery.id)
        if kind is Kind.RESERVED:
            back.append(delivery)
        else:
            await source.ack(delivery)
    for delivery in reversed(back):
        await source.give_back(delivery)


class SessionsOnConnection:
    """In place of `HandlerSessions`."""

    def __init__(self, conn: Any, consumer: Consumer) -> None:
        self.is_async = is_async_handler(consumer.handler)
        if not fits(conn, consumer):
            raise UnsupportedConnection(
                f"The consumer {consumer.name!r} is a def; its connection cannot be asynchronous."
            )
        self._session = _Savepoint(conn if is_async(conn) or not self.is_async else AsyncFace(conn), self.is_async)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        try:
            yield self._session
        except BaseException:
            await self._session.abort()
            raise

    async def aclose(self) -> None:
        """The connection is the test's."""


class _Savepoint:
    """A `Session` whose transaction is a savepoint. A `def` handler runs in the drain's own thread."""

    def __init__(self, conn: Any, is_async: bool) -> None:
        self._conn, self._is_async = conn, is_async
        self._is_open = False

    @property
    def is_lost(self) -> bool:
        return bool(self._conn.closed)

    async def execute(self, statement: LiteralString) -> None:
        for one in _INSTEAD.get(statement, (statement,)):
            await self._run(self._conn.execute, one)
        self._is_open = statement == BEGIN or (self._is_open and statement not in _INSTEAD)

    async def steps(self, steps: Steps[T]) -> T:
        return await drivers.arun(self._conn, steps) if self._is_async else drivers.run(self._conn, steps)

    async def call(self, function: Callable[..., Any], *values: Any) -> Any:
        return await self._run(function, self._conn, *values)

    async def interrupt(self, running: asyncio.Future[Any]) -> None:
        running.cancel()

    async def close(self) -> None: ...

    async def abort(self) -> None:
        if self._is_open and not self.is_lost:
            await self.execute("ROLLBACK")

    async def _run(self, function: Callable[..., Any], *values: Any) -> Any:
        return await function(*values) if self._is_async else function(*values)
