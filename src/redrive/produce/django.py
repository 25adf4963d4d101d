"""Statements over Django's connection, `django.db.connection` or one of `django.db.connections`, inside `atomic`.

Imported only after one of them was handed in.
"""

from __future__ import annotations

from typing import Any, TypeVar

from django.db import Error

from redrive.errors import UnsupportedConnection
from redrive.produce.carry import carry, has_rows, refuse_autocommit, refuse_failed_transaction, reraise
from redrive.produce.steps import Rows, Statement, Steps

T = TypeVar("T")


def run(conn: Any, steps: Steps[T]) -> T:
    _require_transaction(conn)
    with conn.cursor() as cursor:

        def execute(statement: Statement) -> Rows:
            cursor.execute(*statement)
            rows: Rows = cursor.fetchall() if has_rows(statement[0]) else ()
            return rows

        try:
            return carry(steps, execute)
        except Error as error:
            below: Any = error.__cause__
            state = getattr(below, "sqlstate", None) or getattr(below, "pgcode", None)
            reraise(error, sqlstate=state, text=below.diag.message_primary if below else None)


def _require_transaction(conn: Any) -> None:
    vendor = getattr(conn, "vendor", None)
    if vendor != "postgresql":
        raise UnsupportedConnection(
            f"This connection leads to {vendor}; messages live in PostgreSQL, beside your data."
        )
    conn.ensure_connection()
    if conn.in_atomic_block and conn.needs_rollback:
        refuse_failed_transaction()
    if not conn.in_atomic_block and conn.get_autocommit():
        refuse_autocommit("`with transaction.atomic():`")
