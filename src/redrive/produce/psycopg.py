"""Statements over a psycopg 3 connection that belongs to the caller.

The caller's row factory, cursor class and open cursors do not matter and are not touched. A transaction must be
open, or be opened by the statement (ruling 18). Imported only after a psycopg connection was handed in.
"""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

import psycopg
from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row

from redrive.errors import NoOpenTransaction, UsageError
from redrive.produce.steps import Statement, Steps, explained

T = TypeVar("T")


def run(conn: Connection[Any] | Cursor[Any], steps: Steps[T]) -> T:
    connection = conn.connection if isinstance(conn, Cursor) else conn
    if _is_begin_queued(connection):
        with connection.pipeline() as pipeline:
            pipeline.sync()
    _require_transaction(connection)
    with Cursor(connection, row_factory=tuple_row) as cursor:
        try:
            statement = next(steps)
            while True:
                cursor.execute(*_in_binary(statement), binary=True)
                statement = steps.send(cursor.fetchall() if _has_rows(statement) else ())
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        except psycopg.Error as error:
            _raise(error)


async def arun(conn: AsyncConnection[Any] | AsyncCursor[Any], steps: Steps[T]) -> T:
    connection = conn.connection if isinstance(conn, AsyncCursor) else conn
    if _is_begin_queued(connection):
        async with connection.pipeline() as pipeline:
            await pipeline.sync()
    _require_transaction(connection)
    async with AsyncCursor(connection, row_factory=tuple_row) as cursor:
        try:
            statement = next(steps)
            while True:
                await cursor.execute(*_in_binary(statement), binary=True)
                statement = steps.send(await cursor.fetchall() if _has_rows(statement) else ())
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        except psycopg.Error as error:
            _raise(error)


def _has_rows(statement: Statement) -> bool:
    """By the text: in a pipeline there is no result to ask before it was fetched."""
    return statement[0].startswith("SELECT")


def _in_binary(statement: Statement) -> Statement:
    """Arrays of payloads are half as dear in binary; the casts in the statement give the types."""
    query, values = statement
    return query.replace("%s", "%b"), values


def _is_begin_queued(connection: Connection[Any] | AsyncConnection[Any]) -> bool:
    """In a pipeline the BEGIN may not have been answered yet, and the status not tell the truth."""
    info = connection.info
    return info.transaction_status is TransactionStatus.IDLE and info.pipeline_status is not PipelineStatus.OFF


def _require_transaction(connection: Connection[Any] | AsyncConnection[Any]) -> None:
    status = connection.info.transaction_status
    if status is TransactionStatus.INERROR:
        raise UsageError(
            "The transaction on this connection has failed already and takes no statement; roll it back, then enqueue."
        )
    if status is TransactionStatus.IDLE and connection.autocommit:
        raise NoOpenTransaction(
            "The connection is in autocommit mode and no transaction is open, so the message could not commit together"
            " with your data. Write both inside `with conn.transaction():` (`async with` for an AsyncConnection)."
        )


def _raise(error: psycopg.Error) -> NoReturn:
    known = explained(error.sqlstate, error.diag.message_primary or str(error))
    if known is None:
        raise error
    raise known from error
