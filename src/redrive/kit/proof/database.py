"""The database of a proof: on a server of its own, or with a DSN in a database of its own on that server."""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import conninfo, sql

from redrive.operate import embedded
from redrive.store.migrations import migrate
from redrive.system import System


@dataclass(frozen=True)
class ProofDatabase:
    """restart: stops its server and starts it; None where --dsn names one."""

    dsn: str
    server: str
    restart: Callable[[], None] | None


@contextmanager
def open_proof_database(directory: Path, dsn: str | None, *, systems: Sequence[System] = ()) -> Iterator[ProofDatabase]:
    """Migrated, with the tables of these systems; removed at the end."""
    if dsn is None:
        with _own_server(directory / "data") as server:
            migrate.upgrade(server.running.dsn, sets=sets_of(systems))
            yield ProofDatabase(server.running.dsn, server_name(server.running.major), server.restart)
    else:
        with _own_database(dsn) as made:
            migrate.upgrade(made, sets=sets_of(systems))
            yield ProofDatabase(made, "PostgreSQL of --dsn, in a database of its own", None)


def sets_of(systems: Sequence[System]) -> list[migrate.MigrationSet]:
    """Their migrations; the engine's own come first."""
    return [migrate.MigrationSet(one.name, one.migrations) for one in systems if one.migrations is not None]


def server_name(major: int) -> str:
    return f"PostgreSQL {major}, embedded"


class _OwnServer:
    """An embedded server that can be stopped as by a power cut."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self.running = embedded.start(data_dir)

    def restart(self) -> None:
        """The next start recovers."""
        kill_server(self.running)
        self.running = embedded.start(self._data_dir)


def kill_server(server: embedded.Server) -> None:
    """As by a power cut."""
    os.kill(server.pid, signal.SIGQUIT)
    while server.running:
        time.sleep(0.01)
    server.close()


@contextmanager
def _own_server(data_dir: Path) -> Iterator[_OwnServer]:
    server = _OwnServer(data_dir)
    try:
        yield server
    finally:
        server.running.stop()
        server.running.close()


@contextmanager
def _own_database(dsn: str) -> Iterator[str]:
    name = f"redrive_prove_{secrets.token_hex(6)}"
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))
    try:
        yield conninfo.make_conninfo(dsn, dbname=name)
    finally:
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
