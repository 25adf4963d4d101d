"""Migration sets of a test's own, and sessions that look at what the migrator does to them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from redrive.store.migrations.migrate import MigrationSet

# Other tests run on the same server at the same time; this sees the locks of one database.
ADVISORY_LOCKS = """
    SELECT pid, objid::bigint AS key, granted FROM pg_locks
     WHERE locktype = 'advisory'
       AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
_UPGRADE = """
import sys
from pathlib import Path
from redrive.store.migrations.migrate import MigrationSet, upgrade
done = upgrade(sys.argv[1], sets=[MigrationSet("redrive", Path(sys.argv[2]), "1.0")], lock_timeout_seconds=60)
print(*(step.name for step in done.applied), sep="\\n")
"""


class Files:
    """A directory that is filled file by file."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def table(self, name: str, text: str) -> Files:
        return self._write("tables", name, text)

    def verb(self, name: str, text: str) -> Files:
        return self._write("verbs", name, text)

    def function(self, name: str, answer: int, *, header: str = "") -> Files:
        body = f"{header}CREATE OR REPLACE FUNCTION redrive.{name}() RETURNS int LANGUAGE plpgsql AS $$\n"
        return self.verb(f"{name}.sql", f"{body}BEGIN RETURN {answer}; END $$;\n")

    def remove(self, path: str) -> Files:
        (self.directory / path).unlink()
        return self

    def as_set(self, name: str = "redrive", version: str = "1.0") -> MigrationSet:
        """Named redrive, it stands in for the engine's own set."""
        return MigrationSet(name, self.directory, version)

    def _write(self, folder: str, name: str, text: str) -> Files:
        place = self.directory / folder
        place.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(text.encode())
        return self


@contextmanager
def session(dsn: str, **settings: Any) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(dsn, autocommit=True, **settings) as connection:
        yield connection


def value(dsn: str, query: str, *values: Any) -> Any:
    with session(dsn) as connection:
        row = connection.execute(query.encode(), values or None).fetchone()
    return row[0] if row else None


def start_migrator(dsn: str, files: Files) -> subprocess.Popen[str]:
    """`upgrade` in a process of its own; prints the names of what it applied."""
    command = [sys.executable, "-c", _UPGRADE, dsn, str(files.directory)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def recorded(dsn: str) -> list[tuple[str, str]]:
    with session(dsn) as connection:
        query = "SELECT set_name, number_or_file FROM redrive.schema_version ORDER BY applied_at"
        return connection.execute(query).fetchall()
