"""Statements over the caller's psycopg2 connection."""

from typing import Any, TypeVar

import psycopg2
from psycopg2.extensions import connection, cursor

from redrive.errors import UnsupportedConnection
from redrive.produce import driver
from redrive.produce.driver import Within
from redrive.produce.protocol import Rows, Statement, Steps

T = TypeVar("T")


def run(conn: Any, steps: Steps[T], within: Within) -> T:
    owner: connection = conn.connection if isinstance(conn, cursor) else conn
    _check_transaction(owner, within)
    with owner.cursor(cursor_factory=cursor) as own:

        def execute(statement: Statement) -> Rows:
            own.execute(*statement)
            return own.fetchall() if driver.has_rows(statement[0]) else ()

        try:
            return driver.carry(steps, execute)
        except psycopg2.Error as error:
            driver.reraise(error, sqlstate=error.pgcode, text=error.diag.message_primary)
        finally:
            if within is Within.NONE and not owner.autocommit:
                owner.rollback()


def _check_transaction(owner: connection, within: Within) -> None:
    if owner.async_:
        raise UnsupportedConnection(
            "This psycopg2 connection is asynchronous (async_=1): it has no transactions. Hand in a synchronous one."
        )
    write = "`with conn:` after `conn.autocommit = False`"
    driver.check_status(owner.get_transaction_status(), within, autocommit=owner.autocommit, write=write)
