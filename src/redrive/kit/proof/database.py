"""The database of a proof: on a server of its own, or with a DSN in a database of its own on that server."""

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
    """Migrated, with the tables of these systems."""
    if dsn is None:
        with _own_server(directory / "data", systems) as database:
            yield database
    else:
        with open_another_database(dsn, systems=systems) as made:
            yield ProofDatabase(made, "PostgreSQL of --dsn, in a database of its own", None)


def sets_of(systems: Sequence[System]) -> list[migrate.MigrationSet]:
    return [migrate.MigrationSet(one.name, one.migrations) for one in systems if one.migrations is not None]


def server_name(major: int) -> str:
    return f"PostgreSQL {major}, embedded"


def kill_server(server: embedded.Server) -> None:
    """As by a power cut."""
    os.kill(server.pid, signal.SIGQUIT)
    while server.running:
        time.sleep(0.01)
    server.close()


@contextmanager
def _own_server(data_dir: Path, systems: Sequence[System]) -> Iterator[ProofDatabase]:
    server = embedded.start(data_dir)

    def restart() -> None:
        """As by a power cut; the next start recovers."""
        nonlocal server
        kill_server(server)
        server = embedded.start(data_dir)

    try:
        migrate.upgrade(server.dsn, sets=sets_of(systems))
        yield ProofDatabase(server.dsn, server_name(server.major), restart)
    finally:
        server.stop()


@contextmanager
def open_another_database(dsn: str, *, systems: Sequence[System] = ()) -> Iterator[str]:
    """On the server of this DSN, migrated, with the tables of these systems; dropped at the end."""
    with own_database(dsn, "redrive_prove") as made:
        migrate.upgrade(made, sets=sets_of(systems))
        yield made


@contextmanager
def own_database(dsn: str, prefix: str) -> Iterator[str]:
    """The DSN of a new, empty database on that server; dropped afterwards."""
    name = f"{prefix}_{secrets.token_hex(6)}"
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))
    try:
        yield conninfo.make_conninfo(dsn, dbname=name)
    finally:
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
