"""Every way into the outbox: one producer for each driver, and for each layer above a driver.

A producer has a connection of its own; what it writes commits or rolls back with what it enqueues. The tests of this
directory run over all of them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Protocol
from uuid import uuid4

import asyncpg
import psycopg
import psycopg2
from django.db.utils import ConnectionHandler
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

import redrive
from redrive.message import CancelAnswer, NewMessage, Receipt, Status
from redrive.produce.driver import with_dollars
from tests.support import django_project


class Door(Protocol):
    """autocommit: a connection on which no transaction is open, nor opened by a statement."""

    def __call__(self, dsn: str, *, autocommit: bool = False) -> AbstractAsyncContextManager[Producer]: ...


class Producer(Protocol):
    """A caller with a connection of its own."""

    dsn: str
    connection: Any

    async def enqueue(self, destination: Any, payload: Any, **values: Any) -> Receipt: ...
    async def enqueue_many(self, messages: Iterable[NewMessage]) -> list[Receipt]: ...
    async def status(self, id: Any = None, **values: Any) -> Status: ...
    async def cancel(self, id: Any = None, **values: Any) -> CancelAnswer: ...
    async def wait(self, id: Any = None, **values: Any) -> Status: ...
    async def rows(self, query: str, *values: Any) -> list[Any]: ...
    async def commit(self) -> None: ...
    async def rollback(self) -> None: ...
    async def end(self) -> None:
        """Commit, and begin no other transaction before the next statement."""


class Synchronous:
    """execute: how this connection runs a statement; its result may have no rows."""

    def __init__(self, dsn: str, connection: Any, execute: Callable[[str, tuple[Any, ...]], list[Any]]) -> None:
        self.dsn, self.connection, self._execute = dsn, connection, execute

    async def enqueue(self, destination: Any, payload: Any, **values: Any) -> Receipt:
        return redrive.enqueue(self.connection, destination, payload, **values)

    async def enqueue_many(self, messages: Iterable[NewMessage]) -> list[Receipt]:
        return redrive.enqueue_many(self.connection, messages)

    async def status(self, id: Any = None, **values: Any) -> Status:
        return redrive.status(self.connection, id, **values)

    async def cancel(self, id: Any = None, **values: Any) -> CancelAnswer:
        return redrive.cancel(self.connection, id, **values)

    async def wait(self, id: Any = None, **values: Any) -> Status:
        return redrive.wait(self.connection, id, **values)

    async def rows(self, query: str, *values: Any) -> list[Any]:
        return self._execute(query, values)

    async def commit(self) -> None:
        self.connection.commit()

    async def rollback(self) -> None:
        self.connection.rollback()

    async def end(self) -> None:
        self.connection.commit()


class Asynchronous:
    """The same for those that are awaited."""

    def __init__(self, dsn: str, connection: Any, execute: Callable[[str, tuple[Any, ...]], Any]) -> None:
        self.dsn, self.connection, self._execute = dsn, connection, execute

    async def enqueue(self, destination: Any, payload: Any, **values: Any) -> Receipt:
        return await redrive.aenqueue(self.connection, destination, payload, **values)

    async def enqueue_many(self, messages: Iterable[NewMessage]) -> list[Receipt]:
        return await redrive.aenqueue_many(self.connection, messages)

    async def status(self, id: Any = None, **values: Any) -> Status:
        return await redrive.astatus(self.connection, id, **values)

    async def cancel(self, id: Any = None, **values: Any) -> CancelAnswer:
        return await redrive.acancel(self.connection, id, **values)

    async def wait(self, id: Any = None, **values: Any) -> Status:
        return await redrive.wait_async(self.connection, id, **values)

    async def rows(self, query: str, *values: Any) -> list[Any]:
        rows: list[Any] = await self._execute(query, values)
        return rows

    async def commit(self) -> None:
        await self.connection.commit()

    async def rollback(self) -> None:
        await self.connection.rollback()

    async def end(self) -> None:
        await self.connection.commit()


class Asyncpg(Asynchronous):
    """Its transactions are objects: one is begun after each commit, as the others do by themselves."""

    def __init__(self, dsn: str, connection: Any) -> None:
        super().__init__(dsn, connection, self._fetch)
        self._transaction = connection.transaction()

    async def begin(self) -> None:
        self._transaction = self.connection.transaction()
        await self._transaction.start()

    async def commit(self) -> None:
        await self._transaction.commit()
        await self.begin()

    async def rollback(self) -> None:
        await self._transaction.rollback()
        await self.begin()

    async def end(self) -> None:
        await self._transaction.commit()

    async def _fetch(self, query: str, values: tuple[Any, ...]) -> list[Any]:
        return [tuple(row) for row in await self.connection.fetch(with_dollars(query), *values)]


@asynccontextmanager
async def through_psycopg(dsn: str, *, autocommit: bool = False) -> AsyncIterator[Producer]:
    def execute(query: str, values: tuple[Any, ...]) -> list[Any]:
        cursor = connection.execute(query.encode(), values)
        return cursor.fetchall() if cursor.description else []

    with psycopg.connect(dsn, autocommit=autocommit, prepare_threshold=None) as connection:
        yield Synchronous(dsn, connection, execute)
        connection.rollback()


@asynccontextmanager
async def through_async_psycopg(dsn: str, *, autocommit: bool = False) -> AsyncIterator[Producer]:
    async def execute(query: str, values: tuple[Any, ...]) -> list[Any]:
        cursor = await connection.execute(query.encode(), values)
        return await cursor.fetchall() if cursor.description else []

    opened = psycopg.AsyncConnection.connect(dsn, autocommit=autocommit, prepare_threshold=None)
    async with await opened as connection:
        yield Asynchronous(dsn, connection, execute)
        await connection.rollback()


@asynccontextmanager
async def through_psycopg2(dsn: str, *, autocommit: bool = False) -> AsyncIterator[Producer]:
    def execute(query: str, values: tuple[Any, ...]) -> list[Any]:
        with connection.cursor() as cursor:
            cursor.execute(query, values)
            return cursor.fetchall() if cursor.description else []

    connection = psycopg2.connect(dsn)
    connection.autocommit = autocommit
    try:
        yield Synchronous(dsn, connection, execute)
    finally:
        connection.close()


@asynccontextmanager
async def through_asyncpg(dsn: str, *, autocommit: bool = False) -> AsyncIterator[Producer]:
    connection = await asyncpg.connect(**_for_asyncpg(dsn))
    producer = Asyncpg(dsn, connection)
    if not autocommit:
        await producer.begin()
    try:
        yield producer
    finally:
        await connection.close()


def through_sqlalchemy(driver: str, *, session: bool) -> Door:
    @asynccontextmanager
    async def through(dsn: str, *, autocommit: bool = False) -> AsyncIterator[Producer]:
        def execute(query: str, values: tuple[Any, ...]) -> list[Any]:
            connection = door.connection() if isinstance(door, Session) else door
            result = connection.exec_driver_sql(query, values)
            return [tuple(row) for row in result] if result.returns_rows else []

        options = {"isolation_level": "AUTOCOMMIT"} if autocommit else {}
        engine = create_engine(f"postgresql+{driver}://", connect_args=parts_of(dsn), poolclass=NullPool, **options)
        with Session(engine) if session else engine.connect() as door:
            yield Synchronous(dsn, door, execute)
        engine.dispose()

    return through


def through_async_sqlalchemy(driver: str, *, session: bool) -> Door:
    @asynccontextmanager
    async def through(dsn: str, *, autocommit: bool = False) -> AsyncIterator[Producer]:
        async def execute(query: str, values: tuple[Any, ...]) -> list[Any]:
            connection = await door.connection() if isinstance(door, AsyncSession) else door
            text = with_dollars(query) if driver == "asyncpg" else query
            result = await connection.exec_driver_sql(text, values)
            return [tuple(row) for row in result] if result.returns_rows else []

        options = {"isolation_level": "AUTOCOMMIT"} if autocommit else {}
        parts = _for_asyncpg(dsn, **_UNNAMED) if driver == "asyncpg" else parts_of(dsn)
        engine = create_async_engine(f"postgresql+{driver}://", connect_args=parts, poolclass=NullPool, **options)
        opened: AbstractAsyncContextManager[AsyncSession | AsyncConnection]
        opened = AsyncSession(engine) if session else engine.connect()
        async with opened as door:
            yield Asynchronous(dsn, door, execute)
        await engine.dispose()

    return through


@asynccontextmanager
async def through_django(dsn: str, *, autocommit: bool = False) -> AsyncIterator[Producer]:
    def execute(query: str, values: tuple[Any, ...]) -> list[Any]:
        with connection.cursor() as cursor:
            cursor.execute(query, values or None)
            return list(cursor.fetchall()) if cursor.description else []

    connection = django_connection(dsn)
    connection.set_autocommit(autocommit)
    try:
        yield Synchronous(dsn, connection, execute)
    finally:
        connection.close()


def django_connection(dsn: str) -> Any:
    values = {"ENGINE": "django.db.backends.postgresql", **django_project.django_names(dsn)}
    return ConnectionHandler({"default": values})["default"]


def parts_of(dsn: str) -> dict[str, Any]:
    return {name: value for name, value in conninfo_to_dict(dsn).items() if value is not None}


# In transaction mode a pooler may lead to another backend every time: no name of a prepared statement is used twice.
_UNNAMED: Final = {"prepared_statement_cache_size": 0, "prepared_statement_name_func": lambda: f"s{uuid4().hex}"}


def _for_asyncpg(dsn: str, **more: Any) -> dict[str, Any]:
    parts = parts_of(dsn)
    parts["database"] = parts.pop("dbname")
    return {**parts, "statement_cache_size": 0, **more}


DOORS: Final[dict[str, Door]] = {
    "psycopg": through_psycopg,
    "psycopg async": through_async_psycopg,
    "psycopg2": through_psycopg2,
    "asyncpg": through_asyncpg,
    "sqlalchemy connection, psycopg": through_sqlalchemy("psycopg", session=False),
    "sqlalchemy connection, psycopg2": through_sqlalchemy("psycopg2", session=False),
    "sqlalchemy session, psycopg": through_sqlalchemy("psycopg", session=True),
    "sqlalchemy session, psycopg2": through_sqlalchemy("psycopg2", session=True),
    "sqlalchemy async connection, psycopg": through_async_sqlalchemy("psycopg", session=False),
    "sqlalchemy async connection, asyncpg": through_async_sqlalchemy("asyncpg", session=False),
    "sqlalchemy async session, psycopg": through_async_sqlalchemy("psycopg", session=True),
    "sqlalchemy async session, asyncpg": through_async_sqlalchemy("asyncpg", session=True),
    "django": through_django,
}
