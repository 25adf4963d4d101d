"""Statements over the caller's SQLAlchemy 2 connection or session, whichever driver is below it.

A session that flushes by itself is flushed first: its rows are written before the message about them.
`sqlalchemy.ext.asyncio` is imported only for an asynchronous one, because it needs greenlet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session, scoped_session

from redrive.errors import UnsupportedConnection
from redrive.produce import driver
from redrive.produce.driver import Within
from redrive.produce.protocol import Rows, Statement, Steps

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session

T = TypeVar("T")


def run(conn: Connection | Session | scoped_session[Any], steps: Steps[T], within: Within) -> T:
    if isinstance(conn, Connection):
        return _run_on_connection(conn, steps, within)
    session = conn() if isinstance(conn, scoped_session) else conn
    if within is Within.NONE:
        return _run_beside(session, steps)
    if session.autoflush:
        session.flush()
    return _run_on_connection(session.connection(), steps, within)


async def arun(conn: AsyncConnection | AsyncSession | async_scoped_session[Any], steps: Steps[T], within: Within) -> T:
    from sqlalchemy.ext.asyncio import async_scoped_session

    asynchronous = conn() if isinstance(conn, async_scoped_session) else conn
    result: T = await asynchronous.run_sync(run, steps, within)
    return result


def _run_beside(session: Session, steps: Steps[T]) -> T:
    """On a connection of the session's engine: ending a transaction of the session itself would expire its objects."""
    bind = session.connection() if session.in_transaction() else session.get_bind()
    if isinstance(bind, Connection):
        return _run_on_connection(bind, steps, Within.NONE)
    with bind.connect() as connection:
        return _run_on_connection(connection, steps, Within.NONE)


def _run_on_connection(connection: Connection, steps: Steps[T], within: Within) -> T:
    if connection.dialect.name != "postgresql":
        raise UnsupportedConnection(
            f"This connection leads to {connection.dialect.name}; messages live in PostgreSQL, beside your data."
        )
    autocommit = bool(connection.connection.dbapi_connection.autocommit)  # type: ignore[union-attr]
    if within is Within.OPEN and autocommit:
        driver.refuse_autocommit("`with engine.begin() as conn:`, without isolation_level='AUTOCOMMIT'")
    was_begun = connection.in_transaction()
    if within is Within.NONE and was_begun and not autocommit:
        driver.refuse_open_transaction()
    is_numbered = connection.dialect.paramstyle == "numeric_dollar"

    def execute(statement: Statement) -> Rows:
        query, values = statement
        text = driver.with_dollars(query) if is_numbered else query
        result = connection.exec_driver_sql(text, tuple(values))
        return result.fetchall() if driver.has_rows(query) else ()

    try:
        return driver.carry(steps, execute)
    except DBAPIError as error:
        driver.reraise(error, sqlstate=_sqlstate(error), text=_text(error))
    finally:
        if within is Within.NONE and not was_begun:
            connection.rollback()


def _sqlstate(error: DBAPIError) -> str | None:
    state: str | None = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)
    return state


def _text(error: DBAPIError) -> str | None:
    """Without the SQL, the values and the link that SQLAlchemy adds."""
    below: Any = error.orig
    if hasattr(below, "diag"):
        text: str | None = below.diag.message_primary
        return text
    return getattr(below.__cause__, "message", None)
