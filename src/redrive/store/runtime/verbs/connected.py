"""Connections of a store, and how a verb runs its statement."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
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
    """One database. It holds at most `connections` connections, which speak UTC."""

    # Whether `lock_seconds` applies: not where the transaction is that of the caller, who would inherit the setting.
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
        """A connection in autocommit mode, best one that has run this statement before.

        Whatever a retry can mend is raised as `TransientFailure`.
        """
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

    async def _value(self, query: LiteralString, values: Sequence[Any]) -> Any:
        return (await self.rows(query, values))[0][0]

    def reading(self) -> AbstractAsyncContextManager[AsyncConnection[Any]]:
        """A connection for a snapshot, which begins its transaction with `local_settings`."""
        return self.connection()

    @property
    def connections_made(self) -> int:
        """So far; each may lead to another database than the one before."""
        return self._sessions.made

    def count_leases_from_now(self) -> None:
        """For a relay that begins: whether the server refused to write until now is not known to it."""
        self._refused_at = asyncio.get_running_loop().time()
