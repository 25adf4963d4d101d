"""A system's own tables: connections of commands, SQL files, read-only snapshots, and duties that write.

`connected` is for commands: one transaction, and refusals that are sentences. `Database` is what a relay's duty and an
API route have, `RelayDatabase` what a transport opens for itself.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.resources.abc import Traversable
from typing import Any, LiteralString, cast

import psycopg
from psycopg.rows import dict_row

from redrive.app import Duty
from redrive.errors import UsageError
from redrive.operate.installed import upgrade_installed
from redrive.operate.operations import explained
from redrive.operate.operations import opened as open_database
from redrive.ports import Store, TransientFailure
from redrive.store.reads.transaction import ReadTransaction, snapshot
from redrive.store.runtime.postgres import PostgresStore as Database

__all__ = [
    "Connection",
    "Database",
    "ReadTransaction",
    "RelayDatabase",
    "Row",
    "SqlFiles",
    "TransientFailure",
    "connected",
    "database_duty",
    "open_database",
    "snapshot",
    "upgrade_installed",
]


Connection = psycopg.Connection[dict[str, Any]]
Row = Mapping[str, Any]


@contextmanager
def connected(dsn: str, *, name: str) -> Iterator[Connection]:
    """A connection in a transaction that is committed at the end of the block. name: the application name."""
    with explained(dsn):
        with psycopg.connect(dsn, row_factory=dict_row, fallback_application_name=name) as conn:
            yield conn


class SqlFiles:
    """Statements of a system's own folder, one to a file, by name."""

    def __init__(self, folder: Traversable) -> None:
        self._folder = folder
        self.text = cache(self._text)

    def _text(self, name: str) -> bytes:
        return (self._folder / f"{name}.sql").read_bytes()

    def rows(self, conn: Connection, name: str, values: Mapping[str, Any]) -> Sequence[Row]:
        return conn.execute(self.text(name), values).fetchall()

    async def read(self, reads: ReadTransaction, name: str, values: Mapping[str, Any]) -> Sequence[Row]:
        """The same inside a `snapshot`."""
        return await reads.run(self.text(name), values)


class RelayDatabase:
    """A database that a transport asks: the relay names it by `use_database`, and it is opened when it is first asked.

    name: the application name. A database that does not answer raises `TransientFailure`.
    """

    def __init__(self, name: str, *, connections: int = 2) -> None:
        self._name = name
        self._connections = connections
        self._dsn: str | None = None
        self._database: Database | None = None

    def use_database(self, dsn: str) -> None:
        self._dsn = dsn

    async def rows(self, query: LiteralString, values: Sequence[Any]) -> list[Any]:
        if self._dsn is None:
            raise UsageError(f"{self._name} is run by a relay, which says where the database is.")
        if self._database is None:
            self._database = await Database(self._dsn, connections=self._connections, name=self._name).__aenter__()
        return await self._database.rows(query, values)

    async def aclose(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            await database.__aexit__(None, None, None)


def database_duty(name: str, run_once: Callable[[Database], Awaitable[object]], *, every_seconds: float) -> Duty:
    """A duty that runs statements of its own: a relay's store is always a `Database`."""

    async def run(store: Store) -> object:
        return await run_once(cast("Database", store))

    return Duty(name=name, every_seconds=every_seconds, run_once=run)
