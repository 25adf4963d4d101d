"""Connections of a store, and how a verb calls its SQL function."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache
from typing import Any, LiteralString, Self

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import namedtuple_row

from redrive import redact
from redrive.ports import TransientFailure
from redrive.store.runtime.sessions import Sessions

_TRANSIENT = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.SerializationFailure,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.ReadOnlySqlTransaction,  # a standby, or a maintenance: an outage like any other
    TimeoutError,
)


class Connected:
    # Whether `lock_seconds` applies: not in a caller's transaction, which would inherit the setting.
    bounds_locks: bool = True
    # What each transaction begins with; see `tenant_store.py`.
    local_settings: Mapping[str, str] = {}
    # When the server last refused to write, by the event loop's clock.
    _refused_at: float | None = None

    def __init__(self, dsn: str, *, connections: int = 8, name: str = "redrive", timeout_seconds: float = 30.0) -> None:
        self._sessions = Sessions(dsn, limit=connections, application_name=name)
        self._timeout_seconds = timeout_seconds

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._sessions.close()

    @asynccontextmanager
    async def connection(self, statement: str = "") -> AsyncIterator[AsyncConnection[Any]]:
        """In autocommit mode. Whatever a retry can mend is raised as `TransientFailure`."""
        try:
            async with asyncio.timeout(self._timeout_seconds), self._sessions.session(statement) as conn:
                yield conn
        except _TRANSIENT as error:
            if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
                self._refused_at = asyncio.get_running_loop().time()
            raise TransientFailure(redact.error_type(error)) from error

    async def rows(self, query: LiteralString, values: Sequence[Any] | Mapping[str, Any]) -> list[Any]:
        """The rows as named tuples."""
        async with self.connection(query) as conn, conn.cursor(binary=True, row_factory=namedtuple_row) as cursor:
            await cursor.execute(query, values)
            return await cursor.fetchall()

    async def call(self, function: LiteralString, *values: Any) -> list[Any]:
        """The rows that a SQL function returns."""
        return await self.rows("SELECT * FROM " + _called(function, len(values)), values)  # noqa: S608 - no value

    async def value(self, function: LiteralString, *values: Any) -> Any:
        """The one value that a SQL function returns."""
        return (await self.rows("SELECT " + _called(function, len(values)), values))[0][0]

    def reading(self) -> AbstractAsyncContextManager[AsyncConnection[Any]]:
        """A connection for a snapshot, which begins its transaction with `local_settings`."""
        return self.connection()

    @property
    def connections_made(self) -> int:
        """So far; each may lead to another database."""
        return self._sessions.made

    def count_leases_from_now(self) -> None:
        """For a relay that begins, and cannot know whether the server refused to write until now."""
        self._refused_at = asyncio.get_running_loop().time()


@cache
def _called(function: LiteralString, count: int) -> LiteralString:
    """A call without casts: the functions are not overloaded, so PostgreSQL knows the types of their parameters."""
    return "redrive." + function + "(" + ", ".join(["%s"] * count) + ")"
