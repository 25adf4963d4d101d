"""Connections for handlers: an AsyncConnection for `async def`, a Connection in a thread of its own for `def`.

Both have the same methods, so that what runs in a transaction is written once. A session whose handler hangs is
aborted: its statement is cancelled and its connection closed, so that its transaction ends.
"""

import asyncio
import inspect
import os
import socket
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, Final, LiteralString, Protocol, TypeVar

import psycopg

from redrive.produce import drivers
from redrive.produce.protocol import Steps
from redrive.store.runtime.sessions import KEEPALIVE

BEGIN: Final = "BEGIN ISOLATION LEVEL READ COMMITTED"
CANCEL_SECONDS: Final = 5.0
THREADS: Final = "redrive handler"

T = TypeVar("T")


class Session(Protocol):
    """One connection, in autocommit mode, for one transaction at a time."""

    @property
    def is_lost(self) -> bool: ...

    async def execute(self, statement: LiteralString) -> None: ...

    async def steps(self, steps: Steps[T]) -> T: ...

    async def call(self, function: Callable[..., Any], *values: Any) -> Any:
        """Call with the connection and the values."""

    async def interrupt(self, running: asyncio.Future[Any]) -> None:
        """Tell the call that runs to end; it may not."""

    async def close(self) -> None: ...

    async def abort(self) -> None:
        """Close the connection, whatever still runs on it."""


class AsyncSession:
    """For `async def` handlers."""

    def __init__(self, conn: psycopg.AsyncConnection[Any]) -> None:
        self._conn = conn

    @property
    def is_lost(self) -> bool:
        return self._conn.closed

    async def execute(self, statement: LiteralString) -> None:
        await self._conn.execute(statement)

    async def steps(self, steps: Steps[T]) -> T:
        return await drivers.arun(self._conn, steps)

    async def call(self, function: Callable[..., Any], *values: Any) -> Any:
        return await function(self._conn, *values)

    async def interrupt(self, running: asyncio.Future[Any]) -> None:
        """psycopg ends the statement that its caller no longer waits for, and the connection stays usable."""
        running.cancel()

    async def close(self) -> None:
        with suppress(psycopg.Error):
            await self._conn.close()

    async def abort(self) -> None:
        with suppress(psycopg.Error, TimeoutError):
            await self._conn.cancel_safe(timeout=CANCEL_SECONDS)
        await self.close()


class ThreadSession:
    """For `def` handlers: everything on the connection happens in its one thread."""

    def __init__(self, conn: psycopg.Connection[Any], thread: ThreadPoolExecutor) -> None:
        self._conn, self._thread = conn, thread
        self._is_aborted = False

    @property
    def is_lost(self) -> bool:
        return self._is_aborted or self._conn.closed

    async def execute(self, statement: LiteralString) -> None:
        await self._run(self._conn.execute, statement)

    async def steps(self, steps: Steps[T]) -> T:
        found: T = await self._run(drivers.run, self._conn, steps)
        return found

    async def call(self, function: Callable[..., Any], *values: Any) -> Any:
        return await self._run(function, self._conn, *values)

    async def interrupt(self, running: asyncio.Future[Any]) -> None:  # noqa: ARG002 - a thread cannot be cancelled
        with suppress(psycopg.Error, TimeoutError):
            await asyncio.to_thread(self._conn.cancel_safe, timeout=CANCEL_SECONDS)

    async def close(self) -> None:
        with suppress(psycopg.Error):
            await self._run(self._conn.close)
        self._thread.shutdown(wait=False)

    async def abort(self) -> None:
        """The connection is in use by its thread; its socket may be shut down from here."""
        if self._is_aborted:
            return
        self._is_aborted = True
        with suppress(psycopg.Error, TimeoutError):
            await asyncio.to_thread(self._conn.cancel_safe, timeout=CANCEL_SECONDS)
        with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(self._conn.fileno())) as shared:
            shared.shutdown(socket.SHUT_RDWR)
        self._thread.submit(self._conn.close)  # once the handler has ended
        self._thread.shutdown(wait=False)

    async def _run(self, function: Callable[..., Any], *values: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: function(*values))


class Sessions(Protocol):
    """Sessions of one handler. is_async: whether it is `async def`."""

    @property
    def is_async(self) -> bool: ...

    def session(self) -> AbstractAsyncContextManager[Session]: ...

    async def aclose(self) -> None: ...


def is_async_handler(handler: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__)


class HandlerSessions:
    """Sessions of one handler; idle ones are used again."""

    def __init__(self, dsn: str, handler: Callable[..., Any], *, name: str) -> None:
        self._dsn = dsn
        self.is_async = is_async_handler(handler)
        self._options: dict[str, Any] = {
            **KEEPALIVE,
            "application_name": name[:60],
            "autocommit": True,
            "prepare_threshold": None,  # behind a pooler nothing can be prepared
        }
        self._idle: list[Session] = []

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        """It goes back only after a block that ended well: the transaction is over then."""
        session = self._idle.pop() if self._idle else await self._connected()
        try:
            yield session
        except psycopg.OperationalError:
            await session.abort()
            await self.aclose()  # they were lost too
            raise
        except BaseException:
            await session.abort()
            raise
        self._idle.append(session)

    async def aclose(self) -> None:
        while self._idle:
            await self._idle.pop().close()

    async def _connected(self) -> Session:
        if self.is_async:
            return AsyncSession(await psycopg.AsyncConnection.connect(self._dsn, **self._options))
        thread = ThreadPoolExecutor(1, thread_name_prefix=THREADS)
        loop = asyncio.get_running_loop()
        try:
            conn = await loop.run_in_executor(thread, lambda: psycopg.Connection.connect(self._dsn, **self._options))
        except BaseException:
            thread.shutdown(wait=False)
            raise
        return ThreadSession(conn, thread)
