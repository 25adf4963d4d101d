"""What the lists of the command line touch, with 50,000 messages in each place: pages, not tables.

Each statement of `sql/reads` is run as the store runs it; the server counts index entries and scanned rows. A list that
began to read a table, or an index from its beginning, would fail here and not on the day it has a million rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
import pytest

from redrive.store.reads import messages, models
from redrive.store.reads.transaction import statement as sql_of
from tests.support import bulk
from tests.support.databases import fresh_database
from tests.support.touched import Touched, touched

pytestmark = pytest.mark.req("G-05")

Connection = psycopg.Connection[Any]
ROWS = 50_000
PLACES = 20
LIMIT = 50
ANY = {"destination": None, "tenant": None, "kind": None}
SEARCH = {**ANY, "before": messages.END_OF_IDS, "window": models.SEARCH_WINDOW, "limit": LIMIT}
WORKLIST = {
    **ANY,
    "error_class": None,
    "failure_group": None,
    "before_at": messages.END_OF_TIME,
    "before_id": messages.END_OF_IDS,
    "limit": LIMIT,
}

_PARK = """
WITH made AS (
    INSERT INTO redrive.message (id, created_at, level, tenant, destination, kind, content_type, body)
    SELECT redrive.new_id(), now(), 1, 'default', 'place-' || lpad((n %% %(places)s)::text, 2, '0'), 'k',
           'application/json', '\\x7b7d'
      FROM generate_series(1, %(count)s) n RETURNING id, destination
)
INSERT INTO redrive.parked (id, reason, parked_at, first_failed_at, last_failed_at, tenant, destination, stage, version,
                            level, attempt, spent, lookups, crashes, error_class, exhausted, halts, context)
SELECT id, 'dead', now() - random() * interval '1 day', now(), now(), 'default', destination, 'first', 1, 1, 1, 1, 0, 0,
       'HTTP_409', false, true, '{}'
  FROM made
"""
_ACTS = """
INSERT INTO redrive.operator_action (id, at, actor, act, subject, reason, previous_hash, hash)
SELECT n, now(), 'anna', 'requeue', 'subject-' || n %% 1000, 'r', '', '' FROM generate_series(1, %(count)s) n
"""


class World(NamedTuple):
    """A database with `ROWS` messages closed, pending and parked, and 2,000 leased."""

    connection: Connection
    closed: list[UUID]


@pytest.fixture(scope="module")
def world(server_dsn: str, template: str) -> Iterator[World]:
    with fresh_database(server_dsn, template=template) as dsn, psycopg.connect(dsn, autocommit=True) as connection:
        bulk.closed(connection, ROWS)
        bulk.leased(connection, 2000, destination="leased")
        bulk.pending(connection, ROWS)
        connection.execute(_PARK.encode(), {"count": ROWS, "places": PLACES})
        connection.execute(_ACTS.encode(), {"count": ROWS})
        connection.execute("VACUUM ANALYZE")
        rows = connection.execute("SELECT message_id FROM redrive.attempt LIMIT 50").fetchall()
        yield World(connection, [row[0] for row in rows])


def run(world: World, statement: str, /, **values: Any) -> tuple[list[Any], Touched]:
    """The rows of a read, and what it touched."""
    with touched(world.connection) as seen:
        rows = world.connection.execute(sql_of(statement), values).fetchall()
    return rows, seen


def assert_only(seen: Touched, **most: int) -> None:
    """No table is scanned (but the few relays and destinations), and each index gives at most so many entries."""
    scanned = {name: count for name, count in seen.scanned.items() if name not in {"relay", "destination"}}
    assert not scanned, scanned
    for name, count in seen.entries.items():
        allowed = [limit for prefix, limit in most.items() if name.startswith(prefix)]
        assert allowed, f"{name} was not expected: {seen.entries}"
        assert count <= allowed[0], (name, count)


@pytest.mark.parametrize(
    ("name", "values", "index"),
    [
        ("candidates_newest", {}, "message"),
        ("candidates_pending", {}, "pending_pkey"),
        ("candidates_lease", {}, "lease_pkey"),
        ("candidates_parked", {"reason": None}, "parked_pkey"),
        ("candidates_parked", {"reason": "dead"}, "parked_pkey"),
    ],
)
def test_a_page_reads_as_many_entries_as_it_has_rows(
    world: World, name: str, values: dict[str, Any], index: str
) -> None:
    rows, seen = run(world, name, **SEARCH, **values)
    assert len(rows) == LIMIT
    assert_only(seen, **{index: LIMIT + 5})


def test_a_page_in_the_middle_begins_there(world: World) -> None:
    middle = world.closed[0]
    rows, seen = run(world, "candidates_newest", **{**SEARCH, "before": middle})
    assert all(row[0] < middle for row in rows)
    assert_only(seen, message=LIMIT + 5)


def test_a_page_of_closed_messages_probes_the_archive_once_a_row(world: World) -> None:
    newest = max(world.closed)
    rows, seen = run(world, "candidates_closed", **{**SEARCH, "before": newest}, ended=None)
    assert rows
    assert_only(seen, message=LIMIT + 5, attempt=LIMIT + 5)


@pytest.mark.parametrize("name", ["candidates_newest", "candidates_pending", "candidates_parked", "candidates_closed"])
def test_a_search_that_finds_nothing_ends_at_its_window(world: World, name: str) -> None:
    window = 1000
    values = {**SEARCH, "window": window, "destination": "nobody", "reason": None, "ended": None}
    rows, seen = run(world, name, **values)
    assert rows == []
    assert_only(seen, message=window + 5, pending_pkey=window + 5, parked_pkey=window + 5, attempt=window + 5)
    table = {"candidates_pending": "pending", "candidates_parked": "parked"}.get(name, "message")
    (end,), _ = run(world, f"window_end_{table}", before=messages.END_OF_IDS, window=window)
    assert isinstance(end[0], UUID)


def test_the_messages_of_a_page_are_found_by_their_keys(world: World) -> None:
    rows, seen = run(world, "messages", ids=world.closed)
    assert [row[0] for row in rows] == world.closed
    assert_only(seen, message=LIMIT + 5, pending_pkey=0, lease_pkey=0, parked_pkey=0, attempt=LIMIT + 5, relay=0)


def test_the_worklist_of_one_destination_reads_its_page_only(world: World) -> None:
    rows, seen = run(world, "parked", **{**WORKLIST, "destination": "place-07"}, reason="dead")
    assert len(rows) == LIMIT
    assert_only(seen, parked_listed=LIMIT + 5, message=LIMIT + 5)


def test_the_worklist_over_all_destinations_reads_one_page_of_each(world: World) -> None:
    rows, seen = run(world, "parked", **WORKLIST, reason="dead")
    moments = [row[15] for row in rows]
    assert moments == sorted(moments, reverse=True)
    assert_only(seen, parked_listed=PLACES * (LIMIT + 5), message=LIMIT + 5)


def test_a_page_of_the_worklist_in_the_middle_begins_there(world: World) -> None:
    first, _ = run(world, "parked", **WORKLIST, reason="dead")
    following = {**WORKLIST, "before_at": first[-1][15], "before_id": first[-1][0]}
    rows, seen = run(world, "parked", **following, reason="dead")
    assert {row[0] for row in rows}.isdisjoint(row[0] for row in first)
    assert rows[0][15] <= first[-1][15]
    assert_only(seen, parked_listed=PLACES * (LIMIT + 5), message=LIMIT + 5)


@pytest.mark.parametrize("reason", ["held", "unrecorded"])
def test_a_worklist_of_a_reason_that_nothing_has_reads_nothing(world: World, reason: str) -> None:
    rows, seen = run(world, "parked", **WORKLIST, reason=reason)
    assert rows == []
    assert_only(seen, parked_listed=2)


@pytest.mark.parametrize(("subject", "index"), [(None, "operator_action_pkey"), ("subject-7", "operator_action")])
def test_the_audit_reads_a_page(world: World, subject: str | None, index: str) -> None:
    rows, seen = run(world, "audit", subject=subject, before=messages.END_OF_AUDIT, limit=LIMIT)
    assert len(rows) == LIMIT
    assert_only(seen, **{index: LIMIT + 5})


@pytest.mark.parametrize("name", ["timeline", "late_answers", "parked_one", "details", "payload", "payload_size"])
def test_one_message_is_read_by_its_key(world: World, name: str) -> None:
    _, seen = run(world, name, id=world.closed[0], limit=200, version=1)
    everything = dict.fromkeys(("message", "body", "attempt", "late_answer", "pending", "lease", "parked", "relay"), 2)
    assert_only(seen, **everything)


@pytest.mark.parametrize(("name", "known"), [("place-03", True), ("mail", True), ("nobody", False)])
def test_whether_a_destination_is_known_is_asked_of_indexes(world: World, name: str, known: bool) -> None:
    rows, seen = run(world, "knows_destination", name=name)
    assert rows == [(known,)]
    assert seen.scanned.get("pending", 0) + seen.scanned.get("parked", 0) + sum(seen.entries.values()) <= 5


@pytest.mark.req("G-29")
def test_status_reads_what_is_open_and_nothing_of_the_history(world: World) -> None:
    moment = {"now": datetime.now(UTC), "live_seconds": 30.0, "most": 200_000, "limit": 1000}
    rows, seen = run(world, "backlog", **moment)
    assert {row[0] for row in rows} >= {"mail", "leased", "place-00"}
    assert not [name for name in {*seen.scanned, *seen.entries} if name.startswith(("message", "attempt", "body"))]
    assert seen.scanned.get("pending", 0) <= ROWS


WINDOW = 1000
SINCE = datetime(2020, 1, 1, tzinfo=UTC)
TRAFFIC = {"floor_id": UUID(int=0), "window": WINDOW, "since": SINCE, "slot_seconds": 60.0}


@pytest.mark.req("G-21")
@pytest.mark.parametrize("destination", [None, "mail", "nobody"])
def test_the_traffic_reads_the_end_of_the_archive(world: World, destination: str | None) -> None:
    rows, seen = run(world, "traffic", **TRAFFIC, destination=destination)
    assert bool(rows) is (destination != "nobody")
    assert_only(seen, attempt=WINDOW + 5)


@pytest.mark.req("G-21")
def test_the_retry_curve_reads_the_end_of_the_archive(world: World) -> None:
    _, seen = run(world, "retry_delays", floor_id=UUID(int=0), window=WINDOW, destination="mail")
    assert_only(seen, attempt=WINDOW + 5)


@pytest.mark.req("G-21")
def test_a_pulse_reads_no_table(world: World) -> None:
    rows, seen = run(world, "pulse")
    assert rows[0][0] > 0
    assert_only(seen)


@pytest.mark.req("G-21")
def test_samples_of_delivered_messages_are_looked_for_within_a_window(world: World) -> None:
    values = {"destination": "mail", "kind": "", "window": WINDOW, "limit": 50, "bytes_max": 1000}
    _, seen = run(world, "delivered_samples", **values)
    assert_only(seen, message=WINDOW + 5, attempt=WINDOW + 5)


@pytest.mark.req("G-21")
@pytest.mark.parametrize("name", ["group_steps", "group_samples"])
def test_a_group_is_read_by_its_index(world: World, name: str) -> None:
    _, seen = run(world, name, fingerprint=b"nobody", most=1000, limit=50, bytes_max=1000)
    assert_only(seen, parked_group=1, message=1, body=1)


@pytest.mark.req("G-21")
def test_the_replays_of_a_group_are_looked_for_within_a_window(world: World) -> None:
    _, seen = run(world, "group_replays", group="00", window=WINDOW, limit=3)
    assert not {name for name in {*seen.scanned, *seen.entries} if not name.startswith("replay")}
