"""Statements over Django's connection, inside `atomic`."""

from typing import Any, TypeVar

from django.db import Error

from redrive.errors import UnsupportedConnection
from redrive.produce import driver
from redrive.produce.driver import Within
from redrive.produce.protocol import Rows, Statement, Steps

T = TypeVar("T")


def run(conn: Any, steps: Steps[T], within: Within) -> T:
    _check_transaction(conn, within)
    with conn.cursor() as cursor:

        def execute(statement: Statement) -> Rows:
            cursor.execute(*statement)
            rows: Rows = cursor.fetchall() if driver.has_rows(statement[0]) else ()
            return rows

        try:
            return driver.carry(steps, execute)
        except Error as error:
            below: Any = error.__cause__
            state = getattr(below, "sqlstate", None) or getattr(below, "pgcode", None)
            driver.reraise(error, sqlstate=state, text=below.diag.message_primary if below else None)
        finally:
            if within is Within.NONE and not conn.get_autocommit():
                conn.rollback()


def _check_transaction(conn: Any, within: Within) -> None:
    vendor = getattr(conn, "vendor", None)
    if vendor != "postgresql":
        raise UnsupportedConnection(
            f"This connection leads to {vendor}; messages live in PostgreSQL, beside your data."
        )
    conn.ensure_connection()
    if conn.in_atomic_block and conn.needs_rollback:
        driver.refuse_failed_transaction()
    if within is Within.NONE and (conn.in_atomic_block or _is_open(conn)):
        driver.refuse_open_transaction()
    if within is Within.OPEN and not conn.in_atomic_block and conn.get_autocommit():
        driver.refuse_autocommit("`with transaction.atomic():`")


def _is_open(conn: Any) -> bool:
    """Outside `atomic` and without autocommit only the driver below knows; 0 is idle to libpq."""
    below = conn.connection
    status = below.info.transaction_status if hasattr(below, "info") else below.get_transaction_status()
    return int(status) != 0
