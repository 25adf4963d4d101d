"""Statements over the caller's psycopg 3 connection; its row factory, cursor class and open cursors are not touched."""

from functools import cache
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row

from redrive.produce import driver
from redrive.produce.driver import Within
from redrive.produce.protocol import Rows, Statement, Steps

T = TypeVar("T")


def run(conn: Connection[Any] | Cursor[Any], steps: Steps[T], within: Within) -> T:
    connection = conn.connection if isinstance(conn, Cursor) else conn
    if _is_begin_queued(connection):
        with connection.pipeline() as pipeline:
            pipeline.sync()
    _check_transaction(connection, within)
    cursor = Cursor(connection, row_factory=tuple_row)

    def execute(statement: Statement) -> Rows:
        query, values = statement
        cursor.execute(_in_binary(query), values, binary=True)
        return cursor.fetchall() if driver.has_rows(query) else ()

    try:
        return driver.carry(steps, execute)
    except psycopg.Error as error:
        driver.reraise(error, sqlstate=error.sqlstate, text=error.diag.message_primary)
    finally:
        cursor.close()
        if within is Within.NONE and not connection.autocommit:
            connection.rollback()


async def arun(conn: AsyncConnection[Any] | AsyncCursor[Any], steps: Steps[T], within: Within) -> T:
    connection = conn.connection if isinstance(conn, AsyncCursor) else conn
    if _is_begin_queued(connection):
        async with connection.pipeline() as pipeline:
            await pipeline.sync()
    _check_transaction(connection, within)
    cursor = AsyncCursor(connection, row_factory=tuple_row)

    async def execute(statement: Statement) -> Rows:
        query, values = statement
        await cursor.execute(_in_binary(query), values, binary=True)
        return await cursor.fetchall() if driver.has_rows(query) else ()

    try:
        return await driver.acarry(steps, execute)
    except psycopg.Error as error:
        driver.reraise(error, sqlstate=error.sqlstate, text=error.diag.message_primary)
    finally:
        await cursor.close()
        if within is Within.NONE and not connection.autocommit:
            await connection.rollback()


@cache
def _in_binary(query: LiteralString) -> LiteralString:
    """Arrays of payloads cost half as much in binary; the casts in the statement give the types."""
    return query.replace("%s", "%b")


def _is_begin_queued(connection: Connection[Any] | AsyncConnection[Any]) -> bool:
    """In a pipeline the BEGIN may not have been answered yet, so that the status is not the true one."""
    pgconn = connection.pgconn
    return pgconn.pipeline_status != PipelineStatus.OFF and pgconn.transaction_status == TransactionStatus.IDLE


def _check_transaction(connection: Connection[Any] | AsyncConnection[Any], within: Within) -> None:
    write = "`with conn.transaction():` (`async with` for an AsyncConnection)"
    driver.check_status(connection.pgconn.transaction_status, within, autocommit=connection.autocommit, write=write)
