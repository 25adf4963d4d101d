"""What a claim for as many destinations as an app may have costs, where few or none of them have anything due."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from redrive.app import DESTINATIONS_MAX
from redrive.store.runtime import wire
from tests.support import bulk
from tests.support.databases import fresh_database
from tests.support.touched import touched

pytestmark = pytest.mark.req("G-25")

Connection = psycopg.Connection[Any]
NAMES = [f"d{number:04}" for number in range(DESTINATIONS_MAX)]
LEVELS = (0, 1, 2)
BY_NAME_IN_ONE_SCAN = 17  # from this version of PostgreSQL on, a scan for many names descends once; before, once a name
_CLAIM = (
    "SELECT id, destination FROM redrive.claim_1(%s, %s::text[], %s::smallint[], %s::integer[], 60,"
    " %s::timestamptz[], NULL, true)"
)
_CALLS = """
SELECT p.proname, pg_stat_get_xact_function_calls(p.oid) FROM pg_proc p
 WHERE p.pronamespace = 'redrive'::regnamespace AND pg_stat_get_xact_function_calls(p.oid) > 0
"""
_FUTURE = """
WITH made AS (
    INSERT INTO redrive.message (id, created_at, level, tenant, destination, kind, content_type, body)
    SELECT redrive.new_id(), now(), n, 'default', d.name, '', 'application/json', '\\x7b7d'
      FROM generate_series(0, 2) n, unnest(%s::text[]) AS d(name) RETURNING id, destination, level)
INSERT INTO redrive.pending (id, due_at, level, tenant, destination)
SELECT id, now() + interval '1 hour', level, 'default', destination FROM made
"""


@pytest.fixture(scope="module")
def loaded(server_dsn: str, template: str) -> Iterator[Connection]:
    """Every destination has a message of each level that is not due yet, and none that is."""
    with fresh_database(server_dsn, template=template) as dsn, psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET search_path = redrive")
        connection.execute("SELECT watch_epoch(clock_timestamp())")
        connection.execute("RESET search_path")
        connection.execute(_FUTURE.encode(), [NAMES])
        connection.execute("SET track_functions = 'all'")
        connection.execute("ANALYZE")
        yield connection


@pytest.fixture
def connection(loaded: Connection) -> Iterator[Connection]:
    """Vacuumed first: rows that the test before it rolled back would be read as well."""
    loaded.execute("VACUUM")
    with loaded.transaction(force_rollback=True):
        yield loaded


def claim(
    connection: Connection, names: Sequence[str] = NAMES, *, room: int = 3, since: object = None
) -> list[tuple[Any, str]]:
    rows = [(name, level, room, since) for name in names for level in LEVELS]
    values = [uuid4(), *wire.columns(rows, 4)]
    return connection.execute(_CLAIM, values).fetchall()


def calls(connection: Connection) -> dict[str, int]:
    return dict(connection.execute(_CALLS).fetchall())


def counted(connection: Connection) -> dict[str, int]:
    """The functions that a second claim calls: the first one of a session has its plans to make."""
    claim(connection, NAMES)
    before = calls(connection)
    claim(connection, NAMES)
    return {name: count - before.get(name, 0) for name, count in calls(connection).items()}


def make_limited(connection: Connection) -> None:
    connection.execute(
        "INSERT INTO redrive.destination (name, rate_per_second, concurrency_limit, money)"
        " SELECT u.name, 10, 10, n %% 2 = 0 FROM unnest(%s::text[]) WITH ORDINALITY AS u(name, n)",
        [NAMES],
    )


@pytest.mark.parametrize("limited", [False, True], ids=["plain", "all limited, half money"])
def test_with_nothing_due_a_claim_asks_nothing_about_single_destinations(connection: Connection, limited: bool) -> None:
    if limited:
        make_limited(connection)
    with touched(connection) as seen:
        assert claim(connection) == []
    assert not seen.written
    assert not seen.scanned
    assert sum(counted(connection).values()) <= 15
    if connection.info.server_version >= BY_NAME_IN_ONE_SCAN * 10_000:
        assert sum(seen.scans.values()) <= 20, seen.scans
        assert sum(seen.pages.values()) <= 1500, seen.pages


@pytest.mark.parametrize("limited", [False, True], ids=["plain", "all limited, half money"])
def test_where_few_have_something_due_a_claim_asks_about_those_few(connection: Connection, limited: bool) -> None:
    if limited:
        make_limited(connection)
    few = NAMES[100::300]
    for name in few:
        bulk.pending(connection, 50, destination=name)
    with touched(connection) as seen:
        assert {row[1] for row in claim(connection)} == set(few)
        asked = calls(connection)
    asked_again = sum(asked.get(name, 0) for name in ("due", "allowed", "is_open", "rate_room"))
    assert asked_again <= 10 * len(few)
    assert seen.entries["pending_due"] <= 150 * len(few)


def test_suspects_are_looked_for_where_there_are_any(connection: Connection) -> None:
    make_limited(connection)
    for verb in ("suspect_destinations_1(%s)", "claim_suspect_1(gen_random_uuid(), %s, 60, NULL, true)"):
        before = calls(connection)
        connection.execute(f"SELECT * FROM redrive.{verb}".encode(), [NAMES])
        asked = {name: count - before.get(name, 0) for name, count in calls(connection).items()}
        assert asked.get("allowed", 0) + asked.get("is_open", 0) + asked.get("epoch_changed", 0) == 0, asked


@pytest.mark.parametrize("seed", range(3))
def test_a_claim_for_many_takes_what_small_claims_take(connection: Connection, seed: int) -> None:
    """Deep ones and shallow ones, ordered and not, paused and limited, with a mark or without."""
    dice = random.Random(seed)
    busy = dice.sample(NAMES, dice.choice([5, 60, 400]))
    for name in dice.sample(busy, 5):
        bulk.pending(connection, 80, destination=name)
    for name in busy:
        for _ in range(dice.randint(1, 2)):
            key = dice.choice([None, f"{name}-{dice.randint(1, 2)}"])
            level = dice.choice(LEVELS)
            connection.execute(
                "SELECT redrive.enqueue_1(%s, '{}', p_order_by => %s, p_level => %s::smallint)", [name, key, level]
            )
    for name in dice.sample(busy, 3):
        connection.execute("SELECT redrive.pause_1(%s, 'ann', 'it is down')", [name])
    since = dice.choice([None, connection.execute("SELECT now() - interval '1 minute'").fetchone()[0]])  # type: ignore[index]
    if since is not None:
        since += timedelta(seconds=dice.choice([-1, 1]))

    def taken(size: int) -> set[Any]:
        with connection.transaction(force_rollback=True):
            parts = [NAMES[first : first + size] for first in range(0, len(NAMES), size)]
            return {row[0] for part in parts for row in claim(connection, part, since=since) if row[0] is not None}

    assert taken(len(NAMES)) == taken(20) != set()


def test_destinations_that_are_down_are_named_also_among_many(connection: Connection) -> None:
    down = NAMES[7]
    connection.execute("SELECT redrive.open_breaker_1(%s, now(), 'X', 600, 600)", [down])
    assert claim(connection) == [(None, down)] == claim(connection, NAMES[:10])
