"""Many messages at once, written straight into the tables: for tests that need a large table, not a true history."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg

WORKER = UUID(int=0xA)

_MESSAGES = """
INSERT INTO redrive.message (id, created_at, level, tenant, destination, kind, content_type, body)
SELECT redrive.new_id(), now(), 1, 'default', %(destination)s, '', 'application/json', '\\x7b7d'
  FROM generate_series(1, %(count)s) RETURNING id
"""
_PENDING = f"""
WITH made AS ({_MESSAGES})
INSERT INTO redrive.pending (id, due_at, level, tenant, destination, expires_at)
SELECT id, now() + make_interval(secs => %(due_in_seconds)s), 1, 'default', %(destination)s,
       now() + make_interval(secs => %(expires_in_seconds)s)
  FROM made
"""
_CLOSED = f"""
WITH made AS ({_MESSAGES})
INSERT INTO redrive.attempt (message_id, claimed_at, completed_at, worker, attempt, spent, version, verb, tenant,
                             destination, stage, settlement, answer, closed)
SELECT id, now(), now(), '{WORKER}', 1, 1, 1, 'settle', 'default', %(destination)s, 'first', 'close', 'delivered',
       'delivered'
  FROM made
"""


def pending(
    connection: psycopg.Connection[Any],
    count: int,
    *,
    destination: str = "mail",
    due_in_seconds: float = -60,
    expires_in_seconds: float | None = None,
) -> None:
    values = {
        "count": count,
        "destination": destination,
        "due_in_seconds": due_in_seconds,
        "expires_in_seconds": expires_in_seconds,
    }
    connection.execute(_PENDING.encode(), values)


def closed(connection: psycopg.Connection[Any], count: int, *, destination: str = "mail") -> None:
    connection.execute(_CLOSED.encode(), {"count": count, "destination": destination})


def leased(connection: psycopg.Connection[Any], count: int, *, destination: str = "mail") -> list[UUID]:
    """Claimed by `WORKER`; the ids in their order."""
    pending(connection, count, destination=destination)
    query = "SELECT id FROM redrive.claim_1(%s, %s, '{1}', %s, 3600)"
    return sorted(row[0] for row in connection.execute(query, [WORKER, [destination], [count]]).fetchall())
