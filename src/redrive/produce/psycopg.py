"""Statements over a psycopg 3 connection that belongs to the caller.

The caller's row factory, cursor class and open cursors do not matter and are not touched. To enqueue, a transaction
must be open, or be opened by the statement (ruling 18). Imported only after a psycopg connection was handed in.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row

from redrive.produce.carry import (
    Within,
    acarry,
    carry,
    has_rows,
    refuse_autocommit,
    refuse_failed_transaction,
    refuse_open_transaction,
    reraise,
)
from redrive.produce.steps import Rows, Statement, Steps

T = TypeVar("T")


def run(conn: Connection[Any] | Cursor[Any], steps: Steps[T], within: Within) -> T:
    connection = conn.connection if isinstance(conn, Cursor) else conn
    if _is_begin_queued(connection):
        with connection.pipeline() as pipeline:
            pipeline.sync()
    _check_transaction(connection, within)
    with _closed_again(connection, within), Cursor(connection, row_factory=tuple_row) as cursor:

        def execute(statement: Statement) -> Rows:
            cursor.execute(*_in_binary(statement), binary=True)
            return cursor.fetchall() if has_rows(statement[0]) else ()

        try:
            return carry(steps, execute)
        except psycopg.Error as error:
            reraise(error, sqlstate=error.sqlstate, text=error.diag.message_primary)


async def arun(conn: AsyncConnection[Any] | AsyncCursor[Any], steps: Steps[T], within: Within) -> T:
    connection = conn.connection if isinstance(conn, AsyncCursor) else conn
    if _is_begin_queued(connection):
        async with connection.pipeline() as pipeline:
            await pipeline.sync()
    _check_transaction(connection, within)
    async with _aclosed_again(connection, within), AsyncCursor(connection, row_factory=tuple_row) as cursor:

        async def execute(statement: Statement) -> Rows:
            await cursor.execute(*_in_binary(statement), binary=True)
            return await cursor.fetchall() if has_rows(statement[0]) else ()

        try:
            return await acarry(steps, execute)
        except psycopg.Error as error:
            reraise(error, sqlstate=error.sqlstate, text=error.diag.message_primary)


def _in_binary(statement: Statement) -> Statement:
    """Arrays of payloads are half as dear in binary; the casts in the statement give the types."""
    query, values = statement
    return query.replace("%s", "%b"), values


def _is_begin_queued(connection: Connection[Any] | AsyncConnection[Any]) -> bool:
    """In a pipeline the BEGIN may not have been answered yet, and the status not tell the truth."""
    info = connection.info
    return info.transaction_status is TransactionStatus.IDLE and info.pipeline_status is not PipelineStatus.OFF


def _check_transaction(connection: Connection[Any] | AsyncConnection[Any], within: Within) -> None:
    status = connection.info.transaction_status
    if status is TransactionStatus.INERROR:
        refuse_failed_transaction()
    if within is Within.NONE and status is TransactionStatus.INTRANS:
        refuse_open_transaction()
    if within is Within.OPEN and status is TransactionStatus.IDLE and connection.autocommit:
        refuse_autocommit("`with conn.transaction():` (`async with` for an AsyncConnection)")


@contextmanager
def _closed_again(connection: Connection[Any], within: Within) -> Iterator[None]:
    try:
        yield
    finally:
        if within is Within.NONE and not connection.autocommit:
            connection.rollback()


@asynccontextmanager
async def _aclosed_again(connection: AsyncConnection[Any], within: Within) -> AsyncIterator[None]:
    try:
        yield
    finally:
        if within is Within.NONE and not connection.autocommit:
            await connection.rollback()
