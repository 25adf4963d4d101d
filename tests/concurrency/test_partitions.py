"""Making and retiring partitions beside everything else: no claim waits for it, and no row is in its way for good.

A row in a default partition (no relay ran for weeks, or the clock was ahead) belongs to a range that is made later.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from uuid import uuid4

import psycopg
import pytest

from redrive.errors import OperatorError
from redrive.store.runtime.postgres import PostgresStore
from redrive.store.runtime.verbs import duties
from tests.support.racing import Connection, column, together, value

pytestmark = pytest.mark.req("G-22")

MAKE = "SELECT redrive.make_partitions_1(7 * 86400, 4)"
TABLES = ("message", "body", "attempt")
CLAIM = "SELECT id FROM redrive.claim_1(%s, '{mail}', '{1}', '{1}', 60)"


@pytest.fixture
def late(database: str) -> Iterator[Connection]:
    """All partitions but the defaults are gone, as if no relay had run for weeks: new rows fall into the defaults."""
    with psycopg.connect(database, autocommit=True) as connection:
        for suffix in column(connection, "SELECT suffix FROM redrive.partition_range"):
            connection.execute(f"DROP TABLE {', '.join(f'redrive.{table}_{suffix}' for table in TABLES)}".encode())
        connection.execute("DELETE FROM redrive.partition_range")
        yield connection


def fill_default(connection: Connection, count: int) -> None:
    """Messages that wait, and one that was edited and delivered."""
    connection.execute("SELECT redrive.enqueue_1('mail', 'x') FROM generate_series(1, %s)", [count])
    worker = uuid4()
    (id,) = column(connection, CLAIM, worker)
    connection.execute("SELECT redrive.settle_delivered_1(%s, %s, '{1}', '{5}', '{ref}', '{rules}')", [worker, [id]])
    connection.execute("INSERT INTO redrive.body VALUES (%s, 2, 'text/plain', 'y', sha256('y'), now(), 'me')", [id])


def by_default(connection: Connection) -> int:
    return int(value(connection, "SELECT redrive.rows_in_default_1(1000)"))


def make_all(connection: Connection, *, most: int) -> list[int]:
    """How many rows lay in the defaults before the first call and after each."""
    left = [by_default(connection)]
    while value(connection, "SELECT redrive.make_partitions_1(7 * 86400, 4, p_move_max => %s)", most):
        left.append(by_default(connection))
    return left


def contents(connection: Connection) -> list[object]:
    return [connection.execute(f"SELECT * FROM redrive.{table} ORDER BY 1".encode()).fetchall() for table in TABLES]


def test_rows_in_the_default_partitions_are_moved_into_the_range_that_is_made(late: Connection) -> None:
    fill_default(late, 20)
    assert by_default(late) == 22
    before = contents(late)
    assert value(late, MAKE) == 1  # the range with rows alone, so that its lock is short
    assert by_default(late) == 0
    assert contents(late) == before
    assert value(late, MAKE) == 4
    assert value(late, MAKE) == 0
    assert len(column(late, CLAIM.replace("'{1}', 60", "'{50}', 60"), uuid4())) == 19
    for table in ("message_default", "attempt_default", "body_default"):
        assert column(
            late,
            "SELECT tgenabled FROM pg_trigger WHERE tgrelid = %s::regclass AND tgname = 'append_only'",
            f"redrive.{table}",
        ) == ["O"], "nothing else can be deleted"
    (partition,) = set(column(late, "SELECT tableoid::regclass::text FROM redrive.message"))
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="append-only"):
        late.execute(f"DELETE FROM {partition}".encode())


def test_a_row_far_in_the_future_is_moved_when_its_range_comes(late: Connection) -> None:
    """The clock was three weeks ahead for a moment."""
    value(late, MAKE)
    ahead = "SELECT redrive.id_floor(max(ends_at)) FROM redrive.partition_range"
    late.execute(
        "INSERT INTO redrive.message SELECT (%s), now(), NULL, NULL, NULL, 1, 'default', 'mail', '', NULL, NULL, NULL,"
        " 'text/plain', NULL, 'x'".replace("%s", ahead).encode()
    )
    assert by_default(late) == 1
    assert value(late, "SELECT redrive.make_partitions_1(7 * 86400, 6)") == 1
    assert value(late, "SELECT redrive.make_partitions_1(7 * 86400, 6)") == 1
    assert by_default(late) == 0


async def test_more_rows_than_may_be_moved_under_one_lock_are_moved_into_several_narrower_ranges(
    late: Connection, database: str
) -> None:
    """Else no relay could mend it, no later range would be made, and all that comes would lie in the defaults too."""
    for _ in range(20):
        late.execute("SELECT redrive.enqueue_1('mail', 'x'), pg_sleep(0.003)")
    fill_default(late, 1)
    assert by_default(late) == 23
    before = contents(late)
    left = make_all(late, most=6)
    assert all(earlier - later <= 6 for earlier, later in pairwise(left)), "no more under one lock than was allowed"
    assert (left[-1], contents(late)) == (0, before)
    assert len(left) > 23 / 6
    ranges = late.execute("SELECT starts_at, ends_at FROM redrive.partition_range ORDER BY starts_at").fetchall()
    assert all(earlier[1] == later[0] for earlier, later in pairwise(ranges)), "without a gap"
    assert ranges[-1][1].timestamp() % 604_800 == 0, "the next ones are of the usual width again"
    assert {end - start for start, end in ranges[-3:]} == {timedelta(days=7)}
    assert len(column(late, CLAIM.replace("'{1}', 60", "'{50}', 60"), uuid4())) == 20


async def test_more_rows_of_one_moment_than_may_be_moved_are_left_and_said(late: Connection, database: str) -> None:
    fill_default(late, 1)  # the message, its body and its attempt
    with pytest.raises(psycopg.DatabaseError, match="more than 2 rows") as refused:
        make_all(late, most=2)
    assert refused.value.sqlstate == duties.DEFAULT_TOO_FULL
    assert by_default(late) == 3
    assert value(late, "SELECT redrive.make_partitions_1(7 * 86400, 4, p_move_max => 3)") == 1
    assert by_default(late) == 0


async def test_the_duty_moves_what_it_may_and_says_what_it_may_not(
    late: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_default(late, 20)
    async with PostgresStore(database) as store:
        assert await store.make_partitions(width_seconds=604_800, ahead=4) == 5
        monkeypatch.setattr(duties, "TABLE_LOCK_TRIES", 2)
        with psycopg.connect(database) as reader:
            reader.execute("SELECT count(*) FROM redrive.message")
            with pytest.raises(OperatorError, match="could not be locked"):
                await store.make_partitions(width_seconds=604_800, ahead=6)
        assert await store.make_partitions(width_seconds=604_800, ahead=6) == 2


@pytest.mark.req("G-31")
@pytest.mark.parametrize("verb", ["make", "retire"])
def test_no_claim_waits_for_a_partition_that_is_made_or_retired_beside_a_long_reader(database: str, verb: str) -> None:
    """A claim that had to wait longer than its lock_timeout would fail; the verb itself gives up after 50 ms."""
    old = "timestamptz '2020-01-06 00:00+00'"
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"SELECT redrive.make_partition({old}, {old} + interval '7 days')".encode())
        connection.execute("SELECT redrive.enqueue_1('mail', 'x') FROM generate_series(1, 200)")
    act = "SELECT redrive.make_partitions_1(7 * 86400, 5)" if verb == "make" else f"SELECT redrive.retire_1({old})"

    def change(connection: Connection) -> int:
        for _ in range(20):
            with pytest.raises(psycopg.errors.LockNotAvailable):
                value(connection, act)
        return 0

    def claim(connection: Connection) -> int:
        connection.execute("SET lock_timeout = '1s'")
        worker = uuid4()
        return sum(len(column(connection, CLAIM, worker)) for _ in range(100))

    with psycopg.connect(database) as reader:
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT count(*) FROM redrive.message")
        assert sorted(together(database, [change, claim, claim])) == [0, 100, 100]
        reader.rollback()
    with psycopg.connect(database, autocommit=True) as connection:
        assert value(connection, act) == (1 if verb == "make" else "retired")


async def test_a_clock_that_is_years_ahead_makes_a_bounded_number_of_partitions(database: str) -> None:
    async with PostgresStore(database) as store:
        before = len(await store.ranges())
        ahead = datetime.now(UTC) + timedelta(days=3650)
        assert await store.make_partitions(width_seconds=7 * 86_400, ahead=4, now=ahead) == duties.RANGES_AT_ONCE
        assert len(await store.ranges()) == before + duties.RANGES_AT_ONCE
