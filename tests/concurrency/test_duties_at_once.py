"""What runs once at a time: the election of a duty, the making of partitions, the retirement of a range (ruling 17)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.support.racing import Connection, column, is_waiting, together, value
from tests.support.waiting import wait_until

OLD = "timestamptz '2020-01-06 00:00+00'"
RETIRE_OLD = f"SELECT redrive.retire_1({OLD}, p_lock_ms => 1000)"
# Ids as an old server would have made them: the range is long past, the transaction that writes into it is not.
OLD_IDS = """
CREATE OR REPLACE FUNCTION redrive.new_id() RETURNS uuid LANGUAGE sql VOLATILE AS $$
    SELECT encode(overlay(uuid_send(gen_random_uuid())
        PLACING substring(uuid_send(redrive.id_floor('2020-01-08 00:00+00')) FROM 1 FOR 6) FROM 1 FOR 6), 'hex')::uuid
$$
"""


@pytest.fixture
def old_range(database: str) -> Iterator[Connection]:
    """A range of the year 2020, into which new messages go."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"SELECT redrive.make_partition({OLD}, {OLD} + interval '7 days')")
        connection.execute(OLD_IDS)
        yield connection


@pytest.mark.req("G-17")
def test_of_eight_callers_exactly_one_is_given_the_duty(database: str) -> None:
    begin = "SELECT redrive.begin_duty_1('reap', %s, 15, 600, %s)"
    times = ("2040-01-01 00:00+00", "2040-01-01 00:01+00", "2040-01-01 00:02+00")
    for now in times:

        def call(connection: Connection, *, now: str = now) -> bool:
            worker = uuid4()
            given = bool(value(connection, begin, worker, now))
            if given:
                value(connection, "SELECT redrive.end_duty_1('reap', %s, 'done', %s)", worker, now)
            return given

        assert sorted(together(database, [call] * 8)) == [False] * 7 + [True]


@pytest.mark.req("G-17")
def test_a_duty_under_way_is_given_to_nobody_else(database: str) -> None:
    begin = "SELECT redrive.begin_duty_1('retire', %s, 15, 600, '2040-01-01 00:00+00')"
    given = together(database, [lambda c: bool(value(c, begin, uuid4()))] * 8)
    assert sum(given) == 1


@pytest.mark.req("G-22")
def test_partitions_made_by_eight_at_once_are_made_once_and_without_gaps(database: str) -> None:
    make = "SELECT redrive.make_partitions_1(7 * 86400, 12)"
    with psycopg.connect(database, autocommit=True) as connection:
        before = value(connection, "SELECT count(*) FROM redrive.partition_range")
        made = sum(together(database, [partial(value, query=make)] * 8))
        ranges = connection.execute("SELECT starts_at, ends_at FROM redrive.ranges_1()").fetchall()
    assert len(ranges) == before + made
    assert made > 0
    assert all(one[1] == following[0] for one, following in itertools.pairwise(ranges))


@pytest.mark.req("G-22")
def test_a_range_with_an_uncommitted_message_in_it_is_not_retired(database: str) -> None:
    with psycopg.connect(database) as producer, psycopg.connect(database, autocommit=True) as duty:
        id = value(producer, "SELECT id FROM redrive.enqueue_1('mail', 'x')")
        this_week = "SELECT redrive.retire_1((SELECT min(starts_at) FROM redrive.partition_range), '2100-01-01')"
        assert value(duty, this_week) == "young"
        producer.commit()
        assert value(duty, "SELECT redrive.state_of(%s)", id) == "pending"


@pytest.mark.req("G-22")
def test_a_message_that_commits_while_its_range_is_being_retired_is_seen(database: str, old_range: Connection) -> None:
    with psycopg.connect(database) as producer:
        id = value(producer, "SELECT id FROM redrive.enqueue_1('mail', 'x')")
        answer = _after_it_waits(database, lambda c: value(c, RETIRE_OLD), then=producer.commit)
    assert answer == "open"
    assert value(old_range, "SELECT redrive.state_of(%s)", id) == "pending"
    assert value(old_range, "SELECT count(*) FROM redrive.message WHERE id = %s", id) == 1


@pytest.mark.req("G-22")
def test_a_retirement_that_cannot_have_its_locks_gives_up_and_drops_nothing(
    database: str, old_range: Connection
) -> None:
    with psycopg.connect(database) as producer:
        id = value(producer, "SELECT id FROM redrive.enqueue_1('mail', 'x')")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            value(old_range, RETIRE_OLD)
        producer.commit()
    assert value(old_range, "SELECT redrive.state_of(%s)", id) == "pending"


@pytest.mark.req("G-22")
@pytest.mark.parametrize("place", ["pending", "leased", "parked", "closed"])
def test_a_range_is_retired_only_when_nothing_in_it_is_open(old_range: Connection, place: str) -> None:
    id, worker = value(old_range, "SELECT id FROM redrive.enqueue_1('mail', 'x', 'order:1')"), uuid4()
    if place != "pending":
        assert column(old_range, "SELECT id FROM redrive.claim_1(%s, '{mail}', '{1}', '{1}', 60)", worker) == [id]
    if place == "closed":
        settle = "SELECT count(*) FROM redrive.settle_delivered_1(%s, %s, '{1}', '{5}', '{ref}', '{rules}')"
        assert value(old_range, settle, worker, [id]) == 0
    elif place == "parked":
        old_range.execute(
            "WITH gone AS (DELETE FROM redrive.lease RETURNING *) INSERT INTO redrive.parked (id, reason, parked_at,"
            " first_failed_at, last_failed_at, tenant, destination, stage, version, level, attempt, spent, lookups,"
            " crashes, error_class, exhausted, halts, context) SELECT id, 'dead', now(), now(), now(), tenant,"
            " destination, stage, version, level, attempt, spent, lookups, crashes, 'HTTP_400', false, true, '{}'"
            " FROM gone"
        )
    assert value(old_range, RETIRE_OLD) == ("retired" if place == "closed" else "open")
    kept = value(old_range, "SELECT count(*) FROM redrive.message WHERE id = %s", id)
    assert kept == (0 if place == "closed" else 1)
    known = "SELECT result FROM redrive.enqueue_1('mail', 'x', 'order:1')"
    assert value(old_range, known) == "duplicate", "the registry of keys outlives the range"


def _after_it_waits(dsn: str, act: Callable[[Connection], Any], *, then: Callable[[], object]) -> Any:
    """Run the act in a thread; once it waits for a lock, do the other thing, and return what the act came to."""
    with psycopg.connect(dsn, autocommit=True) as waiter, psycopg.connect(dsn, autocommit=True) as observer:
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(act, waiter)
            wait_until(lambda: is_waiting(observer, waiter), seconds=10, what="the act to wait for a lock")
            then()
            return future.result(30)
