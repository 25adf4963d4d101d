"""Limits over all relays, with eight of them claiming at the same moment: whatever they do, no limit is exceeded."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from tests.support.racing import Connection, column, is_waiting, together, value

pytestmark = pytest.mark.req("G-25")

CLAIMERS = 8
# Rows without an id say that a destination is held back.
CLAIM = "SELECT id FROM redrive.claim_1(%s, '{mail}', '{1}', %s, 60, p_now => %s) WHERE id IS NOT NULL"
ENQUEUE_MANY = "SELECT e.id FROM generate_series(1, %s) n CROSS JOIN LATERAL redrive.enqueue_1('mail', int4send(n)) e"
DELIVER = "SELECT count(*) FROM redrive.settle_delivered_1(%s, %s, '{1}', '{1}', NULL, '{rules}')"


def prepare(database: str, count: int, **columns: Any) -> None:
    """Messages that wait for mail, and what is known of it."""
    with psycopg.connect(database, autocommit=True) as connection:
        column(connection, ENQUEUE_MANY, count)
        connection.execute("INSERT INTO redrive.destination (name) VALUES ('mail')")
        for name, wanted in columns.items():
            connection.execute(f"UPDATE redrive.destination SET {name} = %s".encode(), [wanted])


def test_eight_relays_that_look_at_once_let_out_one_probe(database: str) -> None:
    """Again and again: each round opens the breaker anew."""

    def look(connection: Connection) -> list[UUID]:
        worker = uuid4()
        return [id for _ in range(10) for id in column(connection, CLAIM, worker, [5], None)]

    prepare(database, 200)
    for _ in range(15):
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("DELETE FROM redrive.lease")
            connection.execute(
                "UPDATE redrive.destination SET breaker = 'open', breaker_opened_at = now() - interval '9 s',"
                " breaker_until = now()"
            )
        assert sum(map(len, together(database, [look] * CLAIMERS))) == 1


def test_eight_relays_never_have_more_in_flight_than_the_limit(database: str) -> None:
    most, noting = [0], threading.Lock()

    def work(connection: Connection) -> int:
        """Claim, look, deliver, until nothing is left."""
        worker, done = uuid4(), 0
        while value(connection, "SELECT true FROM redrive.pending LIMIT 1"):
            ids = column(connection, CLAIM, worker, [3], None)
            with noting:
                most[0] = max(most[0], value(connection, "SELECT count(*) FROM redrive.lease"))
            for id in ids:
                assert value(connection, DELIVER, worker, [id]) == 0
            done += len(ids)
        return done

    prepare(database, 400, concurrency_limit=5)
    assert sum(together(database, [work] * CLAIMERS)) == 400
    assert 1 < most[0] <= 5


def test_eight_relays_together_keep_to_the_rate_of_the_database_s_time(database: str) -> None:
    """Each look is at a moment of its own, and they overtake each other; 200 looks are two seconds."""
    began = "2100-01-01 00:00:00+00"
    moments = iter(range(200))

    def look(connection: Connection) -> int:
        worker, taken = uuid4(), 0
        for moment in iter(partial(next, moments, None), None):
            now = value(connection, "SELECT %s::timestamptz + make_interval(secs => %s)", began, moment / 100)
            taken += len(column(connection, CLAIM, worker, [100], now))
        return taken

    prepare(database, 1000, rate_per_second=50)
    taken = sum(together(database, [look] * CLAIMERS))
    assert 50 <= taken <= 50 + 50 * 2, "50 where the last moment came first"
    moments = iter([300])
    assert sum(together(database, [look])) == 50, "a second has passed"


def test_a_claim_does_not_wait_for_a_destination_that_another_holds(database: str) -> None:
    """It has no room there now; others are none the worse for it."""
    prepare(database, 10, rate_per_second=50)
    query = "SELECT id, destination FROM redrive.claim_1(%s, '{mail,fax}', '{1,1}', '{5,5}', 60)"
    with psycopg.connect(database) as other, psycopg.connect(database, autocommit=True) as relay:
        relay.execute("SELECT redrive.enqueue_1('fax', 'x')")
        other.execute("SELECT 1 FROM redrive.destination FOR UPDATE")
        rows = relay.execute(query.encode(), [uuid4()]).fetchall()
        assert [(id is None, name) for id, name in rows] == [(True, "mail"), (False, "fax")]
        other.rollback()
        assert len(relay.execute(query.encode(), [uuid4()]).fetchall()) == 5


def test_whoever_opens_or_pauses_waits_only_for_the_claim_that_holds_the_destination(database: str) -> None:
    prepare(database, 10, rate_per_second=50)
    with (
        psycopg.connect(database) as relay,
        psycopg.connect(database, autocommit=True) as other,
        psycopg.connect(database, autocommit=True) as observer,
    ):
        assert len(column(relay, CLAIM, uuid4(), [5], None)) == 5
        pausing = threading.Thread(target=value, args=[other, "SELECT redrive.pause_1('mail', 'ann', 'down')"])
        pausing.start()
        while not is_waiting(observer, other):
            pass
        relay.commit()
        pausing.join(30)
        assert column(relay, CLAIM, uuid4(), [5], None) == []
