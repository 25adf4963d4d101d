"""What a claim touches: the due rows that it takes and nothing else, however much waits or lies in the archive."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.support import bulk
from tests.support.databases import fresh_database
from tests.support.touched import Touched, touched

pytestmark = pytest.mark.req("G-05")

WAITING = 50_000
ROOM = 200
CLAIM = "SELECT id FROM redrive.claim_1(%s, %s, %s::smallint[], %s, 60) WHERE id IS NOT NULL"

Connection = psycopg.Connection[Any]


@pytest.fixture(scope="module", params=["analyzed", "never analyzed"])
def loaded(request: pytest.FixtureRequest, server_dsn: str, template: str) -> Iterator[Connection]:
    """50,000 messages wait for `mail`; the planner knows the tables, or has never seen them."""
    with fresh_database(server_dsn, template=template) as dsn, psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("ALTER TABLE redrive.pending SET (autovacuum_enabled = false)")
        bulk.pending(connection, WAITING)
        if request.param == "analyzed":
            connection.execute("ANALYZE")
        yield connection


@pytest.fixture
def connection(loaded: Connection) -> Iterator[Connection]:
    """What a test adds is rolled back; each uses a destination of its own, so that it meets no dead rows."""
    with loaded.transaction(force_rollback=True):
        yield loaded


def _claim(connection: Connection, *destinations: str) -> int:
    rows = [(name, level) for name in destinations for level in (0, 1, 2)]
    values = [uuid4(), [row[0] for row in rows], [row[1] for row in rows], [ROOM] * len(rows)]
    return len(connection.execute(CLAIM, values).fetchall())


def _assert_only_what_was_taken(seen: Touched, count: int) -> None:
    assert not seen.of("pending", seen.scanned)
    assert not seen.of("message", seen.scanned)
    assert not seen.of("attempt", seen.scanned)
    assert seen.entries.get("pending_due", 0) <= count + 3
    assert {name for name in seen.entries if name.startswith("pending")} <= {"pending_due"}
    assert seen.of("message", seen.entries) == count
    assert seen.written == ({"pending": count, "lease": count} if count else {})


def test_claim_reads_only_as_many_due_rows_as_it_takes(connection: Connection) -> None:
    with touched(connection) as seen:
        assert _claim(connection, "mail") == ROOM
    _assert_only_what_was_taken(seen, ROOM)
    assert seen.of("pending", seen.pages) <= 8 * ROOM


@pytest.mark.req("G-25")
def test_claim_beside_a_paused_destination_touches_none_of_its_rows(connection: Connection) -> None:
    connection.execute("SELECT redrive.pause_1('mail', 'ann', 'it is down')")
    bulk.pending(connection, 20, destination="sms")
    with touched(connection) as seen:
        assert _claim(connection, "mail", "sms") == 20
    _assert_only_what_was_taken(seen, 20)


@pytest.mark.req("G-25")
def test_without_limits_a_claim_reads_nothing_about_them_and_locks_no_destination(connection: Connection) -> None:
    connection.execute("INSERT INTO redrive.destination (name) SELECT 'd' || n FROM generate_series(1, 100) n")
    connection.execute("INSERT INTO redrive.destination (name) VALUES ('pager')")
    bulk.pending(connection, 2 * ROOM, destination="pager")
    with touched(connection) as seen:
        assert _claim(connection, "pager") == ROOM
    _assert_only_what_was_taken(seen, ROOM)
    assert not seen.of("destination", seen.scanned)
    assert seen.entries.get("destination_watched", 0) == 0
    assert not any(name.startswith(("allowance", "lease_counted")) for name in seen.scans)


@pytest.mark.req("G-25")
def test_claim_beside_a_destination_that_is_down_touches_none_of_its_rows(connection: Connection) -> None:
    connection.execute("SELECT redrive.open_breaker_1('mail', now(), 'X', 600, 600)")
    bulk.pending(connection, 20, destination="gong")
    with touched(connection) as seen:
        assert _claim(connection, "mail", "gong") == 20
    _assert_only_what_was_taken(seen, 20)


@pytest.mark.req("G-25")
@pytest.mark.parametrize(("column", "limit"), [("rate_per_second", 30.0), ("concurrency_limit", 30)])
def test_claim_within_a_limit_reads_in_proportion_to_what_may_go(
    connection: Connection, column: str, limit: float
) -> None:
    connection.execute(f"INSERT INTO redrive.destination (name, {column}) VALUES ('mail', %s)".encode(), [limit])
    with touched(connection) as seen:
        assert _claim(connection, "mail") == 30
    assert not seen.of("pending", seen.scanned)
    assert not seen.of("lease", seen.scanned)
    assert seen.entries["pending_due"] <= 3 * 30 + 10, "counted, claimed, and a little"
    assert seen.written == {"pending": 30, "lease": 30, "allowance": 1}


@pytest.mark.req("G-25")
def test_counting_what_is_in_flight_reads_the_leases_of_that_destination_only(connection: Connection) -> None:
    bulk.leased(connection, 3_000, destination="others")
    connection.execute("INSERT INTO redrive.destination (name, concurrency_limit) VALUES ('chat', 10)")
    bulk.pending(connection, 20, destination="chat")
    assert _claim(connection, "chat") == 10
    with touched(connection) as seen:
        assert _claim(connection, "chat") == 0
    assert not seen.of("lease", seen.scanned)
    assert seen.of("lease", seen.entries) <= 3 * 10, "once for each level"
    assert not seen.written


@pytest.mark.req("G-25")
def test_an_idle_destination_with_limits_is_not_locked_at_every_look(connection: Connection) -> None:
    connection.execute("INSERT INTO redrive.destination (name, rate_per_second) VALUES ('telex', 5)")
    with connection.transaction(), touched(connection) as seen:
        assert _claim(connection, "telex") == 0
    assert not seen.written


def test_claim_of_an_idle_destination_touches_nothing_of_a_busy_one(connection: Connection) -> None:
    with touched(connection) as seen:
        assert _claim(connection, "telex") == 0
    _assert_only_what_was_taken(seen, 0)
    assert not seen.wrote


def test_claim_does_not_read_what_is_not_due(connection: Connection) -> None:
    bulk.pending(connection, 5_000, destination="fax", due_in_seconds=3600)
    bulk.pending(connection, 7, destination="fax")
    with touched(connection) as seen:
        assert _claim(connection, "fax") == 7
    _assert_only_what_was_taken(seen, 7)


@pytest.mark.req("G-18")
def test_claim_of_a_suspect_reads_only_suspects(connection: Connection) -> None:
    bulk.leased(connection, 3, destination="push")
    assert connection.execute("SELECT redrive.reap_1(9, %s)", [bulk.WORKER]).fetchone() == (3,)
    with touched(connection) as seen:
        rows = connection.execute("SELECT id FROM redrive.claim_suspect_1(%s, '{push,mail}', 60)", [uuid4()])
        assert len(rows.fetchall()) == 1
    assert not seen.of("pending", seen.scanned)
    assert seen.of("pending", seen.entries) <= 4, "once for the names, once for the messages"


@pytest.mark.req("G-24")
def test_expire_reads_only_what_has_expired(connection: Connection) -> None:
    bulk.pending(connection, 5_000, destination="chat", expires_in_seconds=3600)
    bulk.pending(connection, 11, destination="chat", expires_in_seconds=-1)
    with touched(connection) as seen:
        assert connection.execute("SELECT redrive.expire_1(500)").fetchone() == (11,)
    assert not seen.of("pending", seen.scanned)
    assert seen.entries["pending_expires"] <= 2 * 11 + 2  # once for their lanes, once to close them


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_claim_beside_a_million_closed_messages_reads_what_it_takes(connection: Connection) -> None:
    for _ in range(10):
        bulk.closed(connection, 100_000)
    connection.execute("ANALYZE")
    with touched(connection) as seen:
        assert _claim(connection, "mail") == ROOM
    _assert_only_what_was_taken(seen, ROOM)
