"""A second listener beside the relays: counts rings exactly, without waiting for time to pass."""

from __future__ import annotations

from typing import Any, Self
from uuid import uuid4

import psycopg

CHANNEL = "outbox_pending"


class Ear:
    """Hears every ring from the moment it is opened."""

    def __init__(self, dsn: str) -> None:
        self._conn: psycopg.Connection[Any] = psycopg.connect(dsn, autocommit=True)
        self._conn.execute("LISTEN outbox_pending")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._conn.close()

    def rings(self) -> int:
        """How many there were since the last call. What was committed before is heard before our own mark."""
        mark = str(uuid4())
        self._conn.execute("SELECT pg_notify(%s, %s)", [CHANNEL, mark])
        for count, said in enumerate(self._conn.notifies(timeout=20)):
            if said.payload == mark:
                return count
            assert said.payload == "new_work"
        raise AssertionError("it does not hear itself")
