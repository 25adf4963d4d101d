"""A store inside the transaction that is open on the caller's connection; each verb is a savepoint in it.

So a test delivers what it never commits. A synchronous connection is wrapped as an asynchronous one and blocks. Used by
`redrive.testing`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, Self, TypeVar

from psycopg import Connection, Cursor
from psycopg.pq import Format
from psycopg.rows import tuple_row

from redrive.errors import UnsupportedConnection
from redrive.produce import drivers
from redrive.produce import psycopg as produce_psycopg
from redrive.produce.driver import Within
from redrive.produce.protocol import Steps
from redrive.store.runtime.postgres import PostgresStore

T = TypeVar("T")

_DJANGO: Final = {"django.utils.connection.ConnectionProxy", "django.db.backends.base.base.BaseDatabaseWrapper"}


class StoreOnConnection(PostgresStore):
    """conn: a psycopg connection, or what has one below: Django's, or SQLAlchemy's over psycopg."""

    bounds_locks = False

    def __init__(self, conn: Any) -> None:
        session = OneSession(psycopg_below(conn))
        self._sessions = session  # type: ignore[assignment]
        self.turn = session.turn
        self._timeout_seconds = 30.0


class OneSession:
    """In place of `Sessions`: one at a time, each in a savepoint, never closed."""

    def __init__(self, conn: Any) -> None:
        self._conn = conn if is_async(conn) else AsyncFace(conn)
        self.turn = asyncio.Lock()

    @asynccontextmanager
    async def session(self, _statement: str) -> AsyncIterator[Any]:
        async with self.turn, self._conn.transaction():
            yield self._conn

    async def close(self) -> None: ...


class AsyncFace:
    """A synchronous psycopg connection, to be awaited."""

    def __init__(self, conn: Connection[Any]) -> None:
        self._conn = conn

    def __getattr__(self, name: str) -> Any:
        return getattr(self._conn, name)

    def cursor(self, *, binary: bool = False, row_factory: Any = tuple_row) -> AsyncCursorFace:
        cursor = Cursor(self._conn, row_factory=row_factory)
        cursor.format = Format.BINARY if binary else Format.TEXT
        return AsyncCursorFace(cursor)

    async def execute(self, *values: Any, **options: Any) -> AsyncCursorFace:
        return await self.cursor().execute(*values, **options)

    @asynccontextmanager
    async def transaction(self, *values: Any, **options: Any) -> AsyncIterator[Any]:
        with self._conn.transaction(*values, **options) as transaction:
            yield transaction


class AsyncCursorFace:
    def __init__(self, cursor: Cursor[Any]) -> None:
        self._cursor = cursor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    async def execute(self, *values: Any, **options: Any) -> Self:
        self._cursor.execute(*values, **options)
        return self

    async def fetchall(self) -> Any:
        return self._cursor.fetchall()

    async def fetchone(self) -> Any:
        return self._cursor.fetchone()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._cursor.close()


async def arun(conn: AsyncFace, steps: Steps[T], within: Within) -> T:
    """Lets `redrive.aenqueue` take the face for a connection (see `produce/drivers.py`)."""
    return produce_psycopg.run(conn._conn, steps, within)


drivers.KNOWN[f"{__name__}.AsyncFace"] = drivers.Driver(__name__, is_async=True)


def psycopg_below(conn: Any) -> Any:
    names = _names(conn)
    if names & {"psycopg.Connection", "psycopg.AsyncConnection"}:
        return conn
    if names & {"psycopg.Cursor", "psycopg.AsyncCursor"}:
        return conn.connection
    if names & _DJANGO:
        conn.ensure_connection()
        return psycopg_below(conn.connection)
    if names & {"sqlalchemy.orm.session.Session", "sqlalchemy.orm.scoping.scoped_session"}:
        return psycopg_below(conn.connection())
    if "sqlalchemy.engine.base.Connection" in names:
        return psycopg_below(conn.connection.dbapi_connection)
    raise UnsupportedConnection(
        f"{type(conn).__module__}.{type(conn).__qualname__} does not run over psycopg 3, so that messages cannot be"
        " delivered inside its transaction. Commit, and run a relay on the database (`async with app.running(dsn)`)."
    )


async def apsycopg_below(conn: Any) -> Any:
    """`psycopg_below`, also for SQLAlchemy's asynchronous classes."""
    names = _names(conn)
    if names & {"sqlalchemy.ext.asyncio.session.AsyncSession", "sqlalchemy.ext.asyncio.scoping.async_scoped_session"}:
        conn, names = await conn.connection(), {"sqlalchemy.ext.asyncio.engine.AsyncConnection"}
    if "sqlalchemy.ext.asyncio.engine.AsyncConnection" in names:
        conn = (await conn.get_raw_connection()).driver_connection
    return conn._conn if isinstance(conn, AsyncFace) else psycopg_below(conn)


def is_django(conn: Any) -> bool:
    """Django's connections belong to a thread."""
    return bool(_names(conn) & _DJANGO)


def is_async(conn: Any) -> bool:
    known = (drivers.KNOWN[name] for name in _names(conn) if name in drivers.KNOWN)
    return any(driver.is_async for driver in known)


def _names(conn: Any) -> set[str]:
    return {f"{kind.__module__}.{kind.__qualname__}" for kind in type(conn).__mro__}
