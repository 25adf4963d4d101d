"""A database of its own for every measurement, filled the fast way."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, LiteralString

import psycopg

from redrive.kit.proof.database import own_database
from redrive.store.migrations import migrate

PAYLOAD = b'{"text":"' + b"x" * 289 + b'"}'  # 300 bytes
FILL_CHUNK = 10_000
BLOCKED_CHUNK = 200  # a transaction that takes one counter often grows slow

_MANY: LiteralString = """
SELECT count(*) FROM redrive.enqueue_many_1(
    array_fill(%(destination)s::text, ARRAY[%(count)s]), array_fill(%(payload)s::bytea, ARRAY[%(count)s]),
    array_fill(NULL::text, ARRAY[%(count)s]), array_fill('default'::text, ARRAY[%(count)s]),
    array_fill(''::text, ARRAY[%(count)s]), array_fill('application/json'::text, ARRAY[%(count)s]),
    array_fill(NULL::text, ARRAY[%(count)s]), array_fill(NULL::timestamptz, ARRAY[%(count)s]),
    array_fill(NULL::timestamptz, ARRAY[%(count)s]), array_fill(1::smallint, ARRAY[%(count)s])
"""
_FILL: LiteralString = _MANY + ")"
_KEYS: LiteralString = ", ARRAY(SELECT %(prefix)s || n %% %(keys)s FROM generate_series(1, %(count)s) n)"
_FILL_LANES: LiteralString = _MANY + _KEYS + ")"
_FILL_BLOCKED: LiteralString = """
SELECT count(*) FROM generate_series(1, %(count)s) n,
       LATERAL redrive.enqueue_1(%(destination)s, %(payload)s, p_order_by => 'blocked',
                                 p_due_at => CASE WHEN n + %(start)s = 1 THEN now() + interval '1 day' END) e
"""
_FINISHED: LiteralString = """
WITH ids AS MATERIALIZED (SELECT redrive.new_id() AS id FROM generate_series(1, %(count)s)),
     messages AS (
        INSERT INTO redrive.message (id, created_at, level, tenant, destination, kind, content_type, body)
        SELECT id, now(), 1, 'default', 'history', '', 'application/json', %(payload)s FROM ids)
INSERT INTO redrive.attempt (message_id, claimed_at, completed_at, worker, attempt, spent, version, latency_ms, verb,
                             tenant, destination, stage, settlement, answer, closed)
SELECT id, now(), now(), gen_random_uuid(), 1, 1, 1, 1, 'settle', 'default', 'history', 'first', 'close', 'delivered',
       'delivered' FROM ids
"""


@contextmanager
def fresh_database(server_dsn: str, prefix: str) -> Iterator[str]:
    """The DSN of a new, migrated database; dropped afterwards."""
    with own_database(server_dsn, prefix) as dsn:
        migrate.upgrade(dsn)
        yield dsn


def fill(dsn: str, destination: str, count: int) -> None:
    _in_chunks(dsn, _FILL, count, FILL_CHUNK, destination=destination)
    execute(dsn, "VACUUM ANALYZE redrive.pending")


def fill_lanes(dsn: str, destination: str, count: int, *, keys: int) -> None:
    """Ordering keys take turns; all at once, as one transaction commits."""
    _in_chunks(dsn, _FILL_LANES, count, count, destination=destination, keys=keys, prefix=destination)


def fill_blocked(dsn: str, destination: str, count: int) -> None:
    """One ordering key whose first message is due tomorrow, each enqueued by itself."""
    _in_chunks(dsn, _FILL_BLOCKED, count, BLOCKED_CHUNK, destination=destination)
    execute(dsn, "VACUUM ANALYZE redrive.pending")


def fill_finished(dsn: str, count: int) -> None:
    """Messages that were delivered long ago."""
    _in_chunks(dsn, _FINISHED, count, 100_000)
    execute(dsn, "VACUUM ANALYZE redrive.message, redrive.attempt")


def _in_chunks(dsn: str, statement: LiteralString, count: int, chunk: int, **values: Any) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        for start in range(0, count, chunk):
            own = {"start": start, "count": min(chunk, count - start), "payload": PAYLOAD}
            conn.execute(statement, {**values, **own})


def checkpoint(dsn: str) -> None:
    """So that no measurement pays for the one before it."""
    execute(dsn, "CHECKPOINT")


def one_row(dsn: str, query: LiteralString) -> tuple[Any, ...]:
    with psycopg.connect(dsn, autocommit=True) as conn:
        row: tuple[Any, ...] | None = conn.execute(query).fetchone()
    assert row is not None
    return row


def execute(dsn: str, statement: LiteralString) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(statement)
