"""The connections of a test's thread, lent to other threads: behind `redrive.testing.drain`. One borrower at a time.

Django keeps connections by thread, so a handler in another thread would neither see what the test has not committed nor
be rolled back with it.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any

from django.db import DatabaseError, connections

Connections = dict[str, Any]


@contextmanager
def lent() -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Yields what a borrowing thread has to put around its work."""
    own: Connections = {one.alias: one for one in connections.all(initialized_only=True)}
    for one in own.values():
        one.inc_thread_sharing()
    try:
        yield partial(_borrowed, own)
    finally:
        for one in own.values():
            one.dec_thread_sharing()


@contextmanager
def _borrowed(own: Connections) -> Iterator[None]:
    before = {alias: connections[alias] for alias in own}
    _put(own)
    try:
        with ExitStack() as stack:
            for one in own.values():
                stack.enter_context(_usable_afterwards(one))
            yield
    finally:
        _put(before)


@contextmanager
def _usable_afterwards(connection: Any) -> Iterator[None]:
    """A refused statement costs a handler its own connection, not the test its transaction."""
    savepoint = connection.savepoint() if connection.in_atomic_block else None
    try:
        yield
    except DatabaseError:
        if savepoint:
            connection.needs_rollback = False
            connection.savepoint_rollback(savepoint)
        raise
    if savepoint and not connection.needs_rollback:
        connection.savepoint_commit(savepoint)


def _put(some: Connections) -> None:
    for alias, connection in some.items():
        connections[alias] = connection
