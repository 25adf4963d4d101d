"""A producer of either kind: the same test runs over a psycopg Connection and an AsyncConnection."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any, Protocol

import psycopg
import pytest

import redrive
from redrive.message import NewMessage, Receipt
from redrive.store.postgres import PostgresStore


class Producer(Protocol):
    """A caller with a connection of its own; what it writes commits or rolls back with what it enqueues."""

    dsn: str
    connection: Any

    async def enqueue(self, destination: Any, payload: Any, **values: Any) -> Receipt: ...
    async def enqueue_many(self, messages: Iterable[NewMessage]) -> list[Receipt]: ...
    async def rows(self, query: str, *values: Any) -> list[Any]: ...
    async def commit(self) -> None: ...
    async def rollback(self) -> None: ...


class SyncProducer:
    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.connection = psycopg.connect(dsn)

    async def enqueue(self, destination: Any, payload: Any, **values: Any) -> Receipt:
        return redrive.enqueue(self.connection, destination, payload, **values)

    async def enqueue_many(self, messages: Iterable[NewMessage]) -> list[Receipt]:
        return redrive.enqueue_many(self.connection, messages)

    async def rows(self, query: str, *values: Any) -> list[Any]:
        cursor = self.connection.execute(query.encode(), values)
        return cursor.fetchall() if cursor.description else []

    async def commit(self) -> None:
        self.connection.commit()

    async def rollback(self) -> None:
        self.connection.rollback()


class AsyncProducer:
    def __init__(self, dsn: str, connection: psycopg.AsyncConnection[Any]) -> None:
        self.dsn = dsn
        self.connection = connection

    async def enqueue(self, destination: Any, payload: Any, **values: Any) -> Receipt:
        return await redrive.aenqueue(self.connection, destination, payload, **values)

    async def enqueue_many(self, messages: Iterable[NewMessage]) -> list[Receipt]:
        return await redrive.aenqueue_many(self.connection, messages)

    async def rows(self, query: str, *values: Any) -> list[Any]:
        cursor = await self.connection.execute(query.encode(), values)
        return await cursor.fetchall() if cursor.description else []

    async def commit(self) -> None:
        await self.connection.commit()

    async def rollback(self) -> None:
        await self.connection.rollback()


@pytest.fixture(params=["sync", "async"])
async def producer(request: pytest.FixtureRequest, database: str) -> AsyncIterator[Producer]:
    if request.param == "sync":
        producer = SyncProducer(database)
        yield producer
        producer.connection.close()
        return
    connection = await psycopg.AsyncConnection.connect(database)
    yield AsyncProducer(database, connection)
    await connection.close()


@pytest.fixture
async def store(database: str) -> AsyncIterator[PostgresStore]:
    async with PostgresStore(database, connections=2) as store:
        yield store
