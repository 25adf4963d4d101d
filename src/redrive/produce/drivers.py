"""Which connections are known, and which module carries statements over them.

Recognised by the names in the class's ancestry, so that no driver is imported here.
"""

from collections.abc import Awaitable, Callable
from functools import cache
from importlib import import_module
from typing import Any, Final, NamedTuple, TypeVar, cast

from redrive.errors import UnsupportedConnection
from redrive.produce.driver import Within
from redrive.produce.protocol import Steps

T = TypeVar("T")


class Driver(NamedTuple):
    module: str
    is_async: bool


_CLASSES: Final = {
    Driver("redrive.produce.psycopg", is_async=False): "psycopg.Connection psycopg.Cursor",
    Driver("redrive.produce.psycopg", is_async=True): "psycopg.AsyncConnection psycopg.AsyncCursor",
    Driver("redrive.produce.psycopg2", is_async=False): "psycopg2.extensions.connection psycopg2.extensions.cursor",
    Driver("redrive.produce.asyncpg", is_async=True): "asyncpg.connection.Connection asyncpg.pool.PoolConnectionProxy",
    Driver("redrive.produce.sqlalchemy", is_async=False): "sqlalchemy.engine.base.Connection"
    " sqlalchemy.orm.session.Session sqlalchemy.orm.scoping.scoped_session",
    Driver("redrive.produce.sqlalchemy", is_async=True): "sqlalchemy.ext.asyncio.engine.AsyncConnection"
    " sqlalchemy.ext.asyncio.session.AsyncSession sqlalchemy.ext.asyncio.scoping.async_scoped_session",
    Driver("redrive.produce.django", is_async=False): "django.db.backends.base.base.BaseDatabaseWrapper"
    " django.utils.connection.ConnectionProxy",
}
KNOWN: Final = {name: driver for driver, names in _CLASSES.items() for name in names.split()}


def run(conn: Any, steps: Steps[T], within: Within = Within.OPEN) -> T:
    kind: Any = type(conn)
    function: Callable[[Any, Steps[T], Within], T] = _function(kind, is_async=False)
    return function(conn, steps, within)


async def arun(conn: Any, steps: Steps[T], within: Within = Within.OPEN) -> T:
    kind: Any = type(conn)
    function: Callable[[Any, Steps[T], Within], Awaitable[T]] = _function(kind, is_async=True)
    return await function(conn, steps, within)


@cache
def _function(kind: type, *, is_async: bool) -> Callable[..., Any]:
    name = _known_name(kind)
    if name is None:
        raise UnsupportedConnection(_not_known(kind, is_async=is_async))
    if KNOWN[name].is_async != is_async:
        there = (
            "redrive.enqueue, status, cancel, wait"
            if is_async
            else "await redrive.aenqueue, astatus, acancel, wait_async"
        )
        raise UnsupportedConnection(f"{name} is for {there}.")
    return cast("Callable[..., Any]", getattr(import_module(KNOWN[name].module), "arun" if is_async else "run"))


def _known_name(kind: type) -> str | None:
    return next((name for name in map(_name, kind.__mro__) if name in KNOWN), None)


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _not_known(kind: type, *, is_async: bool) -> str:
    supported = ", ".join(name for name, driver in KNOWN.items() if driver.is_async == is_async)
    return (
        f"{_name(kind)} is not a connection that Redrive knows. Hand in the connection that your transaction runs on,"
        f" one of: {supported}."
    )
