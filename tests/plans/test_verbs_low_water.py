"""What a claim touches beside a transaction that keeps dead rows alive: with its mark, none of them (DESIGN §6)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, LiteralString
from uuid import uuid4

import psycopg
import pytest

from tests.support.databases import fresh_database
from tests.support.touched import Touched, touched

pytestmark = pytest.mark.req("G-05")

DEAD = 5_000
WAITING = 20
CLAIM: LiteralString = "SELECT id FROM redrive.claim_1(%s, '{mail}', '{1}', '{100}', 60, %s::timestamptz[])"
LOW_WATER: LiteralString = "SELECT since FROM redrive.low_water_1('{mail}', '{1}', %s::timestamptz[])"
TAKE_ALL: LiteralString = "SELECT count(*) FROM redrive.claim_1(%s, '{mail}', '{1}', %s, 3600)"

Connection = psycopg.Connection[Any]


@pytest.fixture(scope="module", params=["unordered", "ordered"])
def held(request: pytest.FixtureRequest, server_dsn: str, template: str) -> Iterator[Connection]:
    """Thousands were claimed beside a snapshot that still sees them waiting; a few wait."""
    with fresh_database(server_dsn, template=template) as dsn, psycopg.connect(dsn) as holder:
        with psycopg.connect(dsn, autocommit=True) as connection:
            _enqueue(connection, request.param, DEAD, "1 hour")
            holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            holder.execute("SELECT count(*) FROM redrive.pending")
            while connection.execute(TAKE_ALL, [uuid4(), [DEAD]]).fetchone() != (0,):
                pass
            _enqueue(connection, request.param, WAITING, "1 minute")
            yield connection


def _enqueue(connection: Connection, kind: str, count: int, ago: str) -> None:
    connection.execute(
        "SELECT redrive.enqueue_1('mail', '{}', p_now => now() - %s::interval,"
        " p_order_by => CASE WHEN %s THEN %s || n END) FROM generate_series(1, %s) n",
        [ago, kind == "ordered", ago, count],
    )


def _mark(connection: Connection, since: datetime | None) -> datetime:
    found = connection.execute(LOW_WATER, [[since]]).fetchone()
    assert found is not None
    mark: datetime = found[0]
    return mark


def _entries(seen: Touched) -> int:
    """Of the two indexes that say what is due: each is read by a claim up to three times."""
    return seen.entries.get("pending_due", 0) + seen.entries.get("lane_wake_due", 0)


def _claim(connection: Connection, since: datetime | None) -> int:
    """How many entries it read to take the few that wait."""
    with touched(connection) as seen:
        assert len(connection.execute(CLAIM, [uuid4(), [since]]).fetchall()) == WAITING
    return _entries(seen)


def test_a_claim_with_its_mark_walks_over_no_dead_rows(held: Connection) -> None:
    assert _claim(held, None) > DEAD  # what it is for
    assert _claim(held, _mark(held, None)) < 5 * WAITING


def test_moving_a_mark_on_walks_over_no_dead_rows(held: Connection) -> None:
    mark = _mark(held, None)
    with touched(held) as seen:
        assert _mark(held, mark) == mark
    assert _entries(seen) <= 2
