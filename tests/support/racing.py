"""Real threads with a connection each, let loose at the same moment.

`together` runs one function per thread behind a barrier and returns their results; an exception of any is raised.
A function gets a connection in autocommit mode and the number of its thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import psycopg

DEADLINE_SECONDS = 60

Connection = psycopg.Connection[Any]
Result = TypeVar("Result")


def together(dsn: str, functions: Sequence[Callable[[Connection], Result]]) -> list[Result]:
    """Each function on a thread and a connection of its own, started at once; results in the order given."""
    barrier = threading.Barrier(len(functions), timeout=DEADLINE_SECONDS)

    def run(function: Callable[[Connection], Result]) -> Result:
        with psycopg.connect(dsn, autocommit=True) as connection:
            barrier.wait()
            return function(connection)

    with ThreadPoolExecutor(len(functions)) as pool:
        return [f.result(DEADLINE_SECONDS) for f in [pool.submit(run, function) for function in functions]]


def value(connection: Connection, query: str, *values: Any) -> Any:
    """The first column of the first row; None where there is none."""
    row = connection.execute(query.encode(), values).fetchone()
    return row[0] if row else None


def column(connection: Connection, query: str, *values: Any) -> list[Any]:
    return [row[0] for row in connection.execute(query.encode(), values).fetchall()]


def is_waiting(observer: Connection, connection: Connection) -> bool:
    """Whether the other connection's statement waits for a lock; asked of the server."""
    return bool(value(observer, "SELECT cardinality(pg_blocking_pids(%s)) > 0", connection.info.backend_pid))
