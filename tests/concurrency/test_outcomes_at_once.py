"""Settle, reap, renew and cancel of the same claims at once: one wins, the loser is evidence, nobody deadlocks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from tests.support.racing import Connection, column, is_waiting, together, value
from tests.support.waiting import wait_until

WORKER = UUID(int=0xA)
LATER = "clock_timestamp() + interval '1 day'"
CLAIM = "SELECT id FROM redrive.claim_1(%s, '{mail}', '{1}', '{5000}', %s)"
DELIVER = "SELECT refusal FROM redrive.settle_delivered_1(%s, %s, %s, %s, %s, %s)"


def _leased(connection: Connection, count: int, *, lease_seconds: float = 60) -> list[UUID]:
    made = "SELECT count(e) FROM generate_series(1, %s) n, LATERAL redrive.enqueue_1('mail', int4send(n)) e"
    assert value(connection, made, count) == count
    ids = column(connection, CLAIM, WORKER, lease_seconds)
    assert len(ids) == count
    return sorted(ids)


def _deliver(connection: Connection, ids: list[UUID], worker: UUID = WORKER) -> list[str]:
    """The answers of those that were not settled."""
    count = len(ids)
    return column(connection, DELIVER, worker, ids, [1] * count, [5] * count, ["ref"] * count, ["rules"] * count)


@pytest.mark.req("G-14")
def test_when_settle_races_reap_exactly_one_wins_and_the_loser_is_evidence(database: str) -> None:
    rounds = 200
    with psycopg.connect(database, autocommit=True) as connection:
        ids = _leased(connection, rounds, lease_seconds=-1)
    start = threading.Barrier(2, timeout=30)

    def settle(connection: Connection) -> list[bool]:
        won = []
        for id in ids:
            start.wait()
            won.append(not _deliver(connection, [id]))
            start.wait()
        return won

    def reap(connection: Connection) -> list[bool]:
        won = []
        for _ in ids:
            start.wait()
            won.append(value(connection, f"SELECT redrive.reap_1(1, NULL, {LATER})") == 1)
            start.wait()
        return won

    settled, _ = together(database, [settle, reap])
    with psycopg.connect(database) as connection:
        for id, won in zip(ids, settled, strict=True):
            state = value(connection, "SELECT redrive.state_of(%s)", id)
            rows = column(connection, "SELECT verb FROM redrive.attempt WHERE message_id = %s", id)
            evidence = value(connection, "SELECT count(*) FROM redrive.late_answer WHERE message_id = %s", id)
            if won:
                assert (state, rows, evidence) == ("delivered", ["settle"], 0)
            else:
                assert (state, rows, evidence) == ("pending", ["reap"], 1)


@pytest.mark.req("G-14")
@pytest.mark.req("G-17")
def test_four_reapers_reap_every_claim_once(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        ids = _leased(connection, 600, lease_seconds=-1)

    def reap(connection: Connection) -> int:
        total = 0
        while count := value(connection, f"SELECT redrive.reap_1(20, NULL, {LATER})"):
            total += count
        return total

    assert sum(together(database, [reap] * 4)) == 600
    with psycopg.connect(database) as connection:
        reaped = column(connection, "SELECT message_id FROM redrive.attempt WHERE verb = 'reap'")
        assert sorted(reaped) == ids
        assert value(connection, "SELECT count(*) FROM redrive.pending WHERE suspect") == 600


@pytest.mark.req("G-14")
def test_the_same_outcomes_settled_in_opposite_order_neither_deadlock_nor_double(database: str) -> None:
    for _ in range(15):
        with psycopg.connect(database, autocommit=True) as connection:
            ids = _leased(connection, 60)
        there = partial(_deliver, ids=ids)
        back = partial(_deliver, ids=ids[::-1])
        first, second = together(database, [there, back])
        assert sorted([*first, *second]) == ["repeated"] * 60
        with psycopg.connect(database) as connection:
            closings = "SELECT count(*) FROM redrive.attempt WHERE message_id = ANY(%s) AND closed = 'delivered'"
            assert value(connection, closings, ids) == 60


@pytest.mark.req("G-14")
@pytest.mark.req("G-28")
def test_settle_beside_renew_and_cancel_leaves_no_lease_behind(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        ids = _leased(connection, 400)
    settled = threading.Event()

    def settle(connection: Connection) -> int:
        try:
            return sum(len(_deliver(connection, [id])) for id in ids)
        finally:
            settled.set()

    def disturb(connection: Connection, *, act: Callable[[Connection, UUID], object]) -> int:
        while not settled.is_set():
            for id in ids:
                act(connection, id)
        return 0

    renew = partial(disturb, act=lambda c, id: column(c, "SELECT redrive.renew_1(%s, %s, '{1}', 60)", WORKER, [id]))
    cancel = partial(disturb, act=lambda c, id: value(c, "SELECT redrive.cancel_1(%s)", id))
    assert together(database, [partial(settle), renew, cancel]) == [0, 0, 0]
    with psycopg.connect(database) as connection:
        row = connection.execute("SELECT enqueued, pending, leased, parked, closed FROM redrive.conservation")
        assert row.fetchone() == (400, 0, 0, 0, 400)


@pytest.mark.req("G-24")
def test_cancel_answers_busy_after_a_second_and_changes_nothing(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as relay, psycopg.connect(database) as recording:
        (id,) = _leased(relay, 1)
        assert value(recording, "SELECT redrive.fence_1(%s, 1)", id) is True
        assert value(relay, "SELECT redrive.cancel_1(%s)", id) == "busy"
        recording.rollback()
        assert value(relay, "SELECT cancel_requested FROM redrive.lease WHERE id = %s", id) is False


@pytest.mark.req("G-14")
@pytest.mark.req("G-24")
def test_a_settle_that_waited_for_a_cancel_still_removes_the_lease(database: str) -> None:
    with psycopg.connect(database) as person, psycopg.connect(database, autocommit=True) as relay:
        (id,) = _leased(relay, 1)
        assert value(person, "SELECT redrive.cancel_1(%s)", id) == "in_flight"
        assert _released_by_commit(database, person, lambda c: _deliver(c, [id])) == []
        assert value(relay, "SELECT count(*) FROM redrive.lease") == 0
        assert value(relay, "SELECT redrive.state_of(%s)", id) == "delivered"


@pytest.mark.req("G-14")
def test_renew_and_reap_pass_a_settle_under_way_without_waiting(database: str) -> None:
    with psycopg.connect(database) as settling, psycopg.connect(database, autocommit=True) as other:
        (id,) = _leased(other, 1, lease_seconds=-1)
        assert _deliver(settling, [id]) == []
        other.execute("SET lock_timeout = '5s'")
        assert value(other, f"SELECT redrive.reap_1(5, NULL, {LATER})") == 0
        assert column(other, "SELECT id FROM redrive.renew_1(%s, %s, '{1}', 60)", WORKER, [id]) == [id]
        assert column(other, CLAIM, uuid4(), 60) == []
        settling.commit()
        assert column(other, "SELECT id FROM redrive.renew_1(%s, %s, '{1}', 60)", WORKER, [id]) == []


def _released_by_commit(dsn: str, holder: Connection, act: Callable[[Connection], Any]) -> Any:
    """Run the act in a thread, commit the holder once the act waits for it, and return what the act came to."""
    with psycopg.connect(dsn, autocommit=True) as waiter, psycopg.connect(dsn, autocommit=True) as observer:
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(act, waiter)
            wait_until(lambda: is_waiting(observer, waiter), seconds=10, what="the act to wait for the holder")
            holder.commit()
            return future.result(30)
