"""A database of its own for every test, on the one server of the run.

The schema, with those of the systems, is built once, as a template named for its content, and copied for each test.
Workers that run in parallel share it: an advisory lock lets one build it. Nothing here knows how the server
was started.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, LiteralString
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

TEMPLATE_LOCK = 0x5245_4452  # any number, the same for all workers
Administrator = psycopg.Connection[tuple[Any, ...]]
PACKAGE = Path(__file__).resolve().parents[2] / "src/redrive"


def dsn_of(server_dsn: str, database: str) -> str:
    """The DSN of another database of the same server."""
    parts = urlsplit(server_dsn)
    if not parts.scheme:
        return psycopg.conninfo.make_conninfo(server_dsn, dbname=database)
    return urlunsplit(parts._replace(path=f"/{database}"))


def server_major(server_dsn: str) -> int:
    """The major version, such as 18."""
    with psycopg.connect(server_dsn) as connection:
        return connection.info.server_version // 10_000


@contextmanager
def fresh_database(server_dsn: str, *, template: str = "template0", over: Administrator | None = None) -> Iterator[str]:
    """A new database, copied from the template; dropped at the end with whoever is still connected.

    over: a connection to the server, kept for this: one for each statement is a quarter of what a database costs.
    """
    name = f"redrive_test_{secrets.token_hex(6)}"
    with nullcontext(over) if over else administrator(server_dsn) as connection:
        # Half of what it costs with WAL.
        _run(connection, "CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy", name, template)
    try:
        yield dsn_of(server_dsn, name)
    finally:
        with nullcontext(over) if over else administrator(server_dsn) as connection:
            _run(connection, "DROP DATABASE IF EXISTS {} WITH (FORCE)", name)


def administrator(server_dsn: str) -> Administrator:
    """A connection that makes and drops databases."""
    return psycopg.connect(server_dsn, autocommit=True)


def migrated_template(server_dsn: str) -> str:
    """The name of the database that holds the schema and nothing else, built if it is not there."""
    name = f"redrive_template_{_digest_of_schema()}"
    with administrator(server_dsn) as connection:
        connection.execute("SELECT pg_advisory_lock(%s)", (TEMPLATE_LOCK,))
        found = connection.execute("SELECT datistemplate FROM pg_database WHERE datname = %s", (name,)).fetchone()
        if found is None or not found[0]:
            _build(server_dsn, name, connection)
    return name


def _build(server_dsn: str, name: str, connection: Administrator) -> None:
    from redrive.operate.installed import installed_sets
    from redrive.store.migrations import migrate

    _run(connection, "DROP DATABASE IF EXISTS {} WITH (FORCE)", name)  # a run that was cut short left it
    _run(connection, "CREATE DATABASE {} TEMPLATE template0", name)
    migrate.upgrade(dsn_of(server_dsn, name), sets=installed_sets())
    _run(connection, "ALTER DATABASE {} IS_TEMPLATE true", name)


def _digest_of_schema() -> str:
    digest = hashlib.sha256()
    for path in sorted([*PACKAGE.rglob("*.sql"), *(PACKAGE / "store/migrations").glob("*.py")]):
        digest.update(path.relative_to(PACKAGE).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _run(connection: Administrator, statement: LiteralString, *names: str) -> None:
    connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))
