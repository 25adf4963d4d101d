"""The database is where PGHOST, PGUSER, … lead to, as for psql."""

from pathlib import Path

import psycopg

DSN = ""  # libpq takes everything from the environment
SCHEMA = (Path(__file__).parent / "schema.sql").read_text(encoding="utf-8")


def create_tables(conn: psycopg.Connection) -> None:
    conn.execute(SCHEMA)


class Refused(Exception):
    """The rows do not allow it, such as to complete a task that is cancelled."""
