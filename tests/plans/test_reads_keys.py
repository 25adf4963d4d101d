"""What the lists of ordering keys touch, with 20,000 messages over 500 keys and 5,000 in one: keys, not messages.

Run as the store runs them; the server counts index entries and scanned rows. The functions open_lanes and lane_head
have to be inlined for this: as calls they would walk over all keys for one page.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from redrive.store.reads.models import KEY_STATES, KEYS_WINDOW, WAITING_MAX, KeyGroup
from redrive.store.reads.transaction import statement as sql_of
from tests.support import bulk
from tests.support.databases import fresh_database
from tests.support.touched import Touched, touched

pytestmark = pytest.mark.req("G-07")

Connection = psycopg.Connection[Any]
KEYS = 500
EACH = 30
LONG = 5000
HALTED = 20
LIMIT = 50
CLAIM = "SELECT id, attempt FROM redrive.claim_1(%s, '{mail}', '{1}', '{%s}', 3600)"
PARK = """
WITH gone AS (DELETE FROM redrive.lease l WHERE l.lane <= %(halted)s OR l.destination = 'parked' RETURNING l.*)
INSERT INTO redrive.parked (id, reason, parked_at, first_failed_at, last_failed_at, tenant, destination, stage, version,
                            level, lane, sequence, attempt, spent, lookups, crashes, error_class, exhausted, halts,
                            context)
SELECT id, 'dead', now(), now(), now(), tenant, destination, stage, version, level, lane, sequence, attempt, 1, 0, 0,
       'HTTP_409', false, true, '{}' FROM gone
"""


@pytest.fixture(scope="module")
def world(server_dsn: str, template: str) -> Iterator[Connection]:
    """Lanes 1 to 20 halted by their first message, 21 to 40 in flight, the others ready; the last has 5,000.

    Besides, 2,000 unordered messages are in hand and 2,000 are parked: a table of few rows would rightly be scanned.
    """
    with fresh_database(server_dsn, template=template) as dsn, psycopg.connect(dsn, autocommit=True) as connection:
        enqueue = "SELECT count(redrive.enqueue_1('mail', '{}', p_order_by => %s || n)) FROM generate_series(1, %s) n"
        for _ in range(EACH):
            connection.execute(enqueue, ["key-", KEYS])
        connection.execute(enqueue.replace("|| n)", ")"), ["long", LONG])
        connection.execute(CLAIM.replace("{%s}", f"{{{2 * HALTED}}}"), ["00000000-0000-0000-0000-00000000000a"])
        bulk.leased(connection, 2000, destination="leased")
        bulk.leased(connection, 2000, destination="parked")
        connection.execute(PARK, {"halted": HALTED})
        connection.execute("VACUUM ANALYZE")
        yield connection


def run(connection: Connection, name: str, group: KeyGroup, **changes: Any) -> tuple[list[Any], Touched]:
    """The rows of a read, and what it touched."""
    values = {
        "after": 0,
        "halted": group is KeyGroup.HALTED,
        "window": KEYS_WINDOW,
        "states": list(KEY_STATES[group]),
        "tenant": None,
        "destination": None,
        "limit": LIMIT,
        "most": WAITING_MAX,
        "order_by": "key-1",
        "now": connection.execute("SELECT clock_timestamp()").fetchone()[0],  # type: ignore[index]  # one row
        **changes,
    }
    with touched(connection) as seen:
        rows = connection.execute(sql_of(name), values).fetchall()
    assert not {table for table in seen.scanned if table not in {"destination", "duty"}}, seen.scanned
    return rows, seen


def entries(seen: Touched) -> int:
    return sum(seen.entries.values())


def test_a_page_of_keys_costs_a_few_probes_a_key_and_what_waits_behind_them(world: Connection) -> None:
    rows, seen = run(world, "keys", KeyGroup.FLOWING)
    assert len(rows) == LIMIT
    walked = HALTED + LIMIT
    assert entries(seen) <= walked * 6 + LIMIT * EACH


def test_a_page_in_the_middle_begins_there(world: Connection) -> None:
    rows, seen = run(world, "keys", KeyGroup.FLOWING, after=300, limit=10)
    assert [row[0] for row in rows] == list(range(301, 311))
    assert entries(seen) <= 10 * (6 + EACH)


def test_halted_keys_are_found_without_walking_over_those_that_flow(world: Connection) -> None:
    rows, seen = run(world, "keys", KeyGroup.HALTED)
    assert [row[0] for row in rows] == list(range(1, HALTED + 1))
    assert entries(seen) <= HALTED * (6 + EACH)


def test_a_walk_that_finds_nothing_looks_at_every_key_once_however_long_they_are(world: Connection) -> None:
    rows, seen = run(world, "keys", KeyGroup.WAITING)
    assert rows == []
    assert entries(seen) <= (KEYS + 1) * 6


def test_a_walk_ends_at_its_window(world: Connection) -> None:
    rows, seen = run(world, "keys", KeyGroup.WAITING, window=100)
    assert rows == []
    assert entries(seen) <= 100 * 6
    (end,), seen = run(world, "window_end_keys", KeyGroup.WAITING, window=100)
    assert end == (100,)
    assert entries(seen) <= 100 * 3


def test_a_long_key_is_counted_no_further_than_is_shown(world: Connection) -> None:
    (row,), seen = run(world, "keys", KeyGroup.FLOWING, after=KEYS)
    assert row[-1] == WAITING_MAX
    assert entries(seen) <= WAITING_MAX + 10


def test_one_key_is_found_by_its_name(world: Connection) -> None:
    ((_, _, name, sequence, state, *_, waiting),), seen = run(world, "key_one", KeyGroup.HALTED, tenant="default")
    assert (name, sequence, state, waiting) == ("key-1", 1, "dead", EACH - 1)
    assert entries(seen) <= EACH + 6
    (known,), seen = run(world, "knows_key", KeyGroup.HALTED, tenant="default")
    assert (known, entries(seen)) == ((True,), 1)


def test_status_counts_keys_and_not_their_messages(world: Connection) -> None:
    halted, seen = run(world, "key_counts", KeyGroup.HALTED)
    assert (halted, entries(seen) <= HALTED * 5) == ([("dead", HALTED)], True)
    others, seen = run(world, "key_counts", KeyGroup.WAITING)
    assert dict(others) == {"dead": HALTED, "in_flight": HALTED, "ready": KEYS + 1 - 2 * HALTED}
    assert entries(seen) <= (KEYS + 1) * 5


def test_what_went_out_after_a_message_is_counted_from_what_waits_of_its_key(world: Connection) -> None:
    ids = [row[0] for row in world.execute("SELECT id FROM redrive.parked WHERE lane <= 3").fetchall()]
    rows, seen = run(world, "gone_out", KeyGroup.HALTED, ids=ids)
    assert rows == []
    assert entries(seen) <= len(ids) * (EACH + 5)


@pytest.mark.parametrize("lanes", [10, 1000])
def test_the_duty_that_mends_lanes_probes_so_many_keys_and_reads_no_long_one(world: Connection, lanes: int) -> None:
    with touched(world) as seen:
        found = world.execute("SELECT * FROM redrive.mend_lanes_1(%s)", [lanes]).fetchone()
        assert found == (0, min(lanes, KEYS + 1), lanes > KEYS)
    assert not seen.scanned
    looked_at = min(lanes, KEYS + 1)
    assert seen.entries.pop("lane_wake_lane") <= looked_at * EACH + (LONG if lanes > KEYS else 0)
    assert seen.entries.pop("duty_pkey", 0) <= 3
    assert entries(seen) <= looked_at * 4
