"""Statements over a psycopg2 connection that belongs to the caller. Imported only after one was handed in."""

from __future__ import annotations

from typing import Any, TypeVar

import psycopg2
from psycopg2.extensions import (
    TRANSACTION_STATUS_IDLE,
    TRANSACTION_STATUS_INERROR,
    TRANSACTION_STATUS_INTRANS,
    connection,
    cursor,
)

from redrive.errors import UnsupportedConnection
from redrive.produce.driver import (
    Within,
    carry,
    has_rows,
    refuse_autocommit,
    refuse_failed_transaction,
    refuse_open_transaction,
    reraise,
)
from redrive.produce.protocol import Rows, Statement, Steps

T = TypeVar("T")


def run(conn: Any, steps: Steps[T], within: Within) -> T:
    owner: connection = conn.connection if isinstance(conn, cursor) else conn
    _check_transaction(owner, within)
    with owner.cursor(cursor_factory=cursor) as own:

        def execute(statement: Statement) -> Rows:
            own.execute(*statement)
            return own.fetchall() if has_rows(statement[0]) else ()

        try:
            return carry(steps, execute)
        except psycopg2.Error as error:
            reraise(error, sqlstate=error.pgcode, text=error.diag.message_primary)
        finally:
            if within is Within.NONE and not owner.autocommit:
                owner.rollback()


def _check_transaction(owner: connection, within: Within) -> None:
    if owner.async_:
        raise UnsupportedConnection(
            "This psycopg2 connection is asynchronous (async_=1): it has no transactions. Hand in a synchronous one."
        )
    status = owner.get_transaction_status()
    if status == TRANSACTION_STATUS_INERROR:
        refuse_failed_transaction()
    if within is Within.NONE and status == TRANSACTION_STATUS_INTRANS:
        refuse_open_transaction()
    if within is Within.OPEN and status == TRANSACTION_STATUS_IDLE and owner.autocommit:
        refuse_autocommit("`with conn:` after `conn.autocommit = False`")
