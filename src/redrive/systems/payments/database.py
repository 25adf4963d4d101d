"""One connection for a command of the system: its transactions are its own, its refusals are sentences.

A system is an application on the engine, and brings its own SQL; this is the only module of it that opens a connection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import files
from typing import Any

import psycopg
from psycopg.rows import dict_row

from redrive.operate.operations import explained

Connection = psycopg.Connection[dict[str, Any]]
Row = Mapping[str, Any]


@contextmanager
def connected(dsn: str) -> Iterator[Connection]:
    """In a transaction that is committed at the end of the block."""
    with explained(dsn):
        with psycopg.connect(dsn, row_factory=dict_row, fallback_application_name="redrive payments") as conn:
            yield conn


def read(conn: Connection, name: str, values: Mapping[str, Any]) -> Sequence[Row]:
    """The rows of `sql/reads/<name>.sql`."""
    text = (files("redrive.systems.payments") / "sql" / "reads" / f"{name}.sql").read_text("utf-8")
    return conn.execute(text, values).fetchall()
