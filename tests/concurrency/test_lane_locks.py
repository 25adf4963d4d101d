"""Whoever holds a lane waits for nobody who may be waiting for it (LANES.md, Locks)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import psycopg
import pytest

from tests.support.racing import Connection, column, is_waiting, value
from tests.support.waiting import wait_until

RELAY = UUID(int=0xA)
ENQUEUE = "SELECT id FROM redrive.enqueue_1('mail', 'x', p_order_by => %s)"
CLAIM = "SELECT id FROM redrive.claim_1(%s, '{mail}', '{1}', '{10}', 60) WHERE id IS NOT NULL"
DELIVER = "SELECT id FROM redrive.settle_delivered_1(%s, %s, '{1}', '{5}', '{ref}', '{rules}', %s, 60)"


@pytest.mark.req("G-07")
@pytest.mark.req("G-24")
def test_a_cancel_that_waited_for_the_lane_of_a_message_now_claimed_does_not_keep_the_lane(database: str) -> None:
    with (
        psycopg.connect(database, autocommit=True) as observer,
        psycopg.connect(database) as relay,
        psycopg.connect(database) as person,
        ThreadPoolExecutor(1) as pool,
    ):
        observer.execute("ALTER FUNCTION redrive.cancel_1 SET lock_timeout = '60s'")
        first, following = (value(observer, ENQUEUE, "customer:1") for _ in range(2))
        assert column(relay, CLAIM, RELAY) == [first]
        relay.commit()

        assert column(relay, DELIVER, RELAY, [first], [True]) == [following]
        cancel = pool.submit(value, person, "SELECT redrive.cancel_1(%s)", following)
        _wait_until_waiting(observer, person)  # for the lane
        relay.commit()
        assert cancel.result(30) == "in_flight"
        assert column(observer, "SELECT id FROM redrive.lane FOR UPDATE SKIP LOCKED") != []


@pytest.mark.req("G-07")
@pytest.mark.req("G-14")
def test_claims_are_reaped_beside_a_transaction_that_holds_the_lane_of_one_of_them(database: str) -> None:
    later = "clock_timestamp() + interval '1 day'"
    with psycopg.connect(database, autocommit=True) as duty, psycopg.connect(database) as application:
        duty.execute("SET lock_timeout = '5s'")
        for key in ("held", "held", "free"):
            value(duty, ENQUEUE, key)
        waiting = value(duty, "SELECT id FROM redrive.pending WHERE sequence = 2")
        assert len(column(duty, CLAIM, RELAY)) == 2
        assert value(application, "SELECT redrive.cancel_1(%s)", waiting) == "cancelled"

        assert value(duty, f"SELECT redrive.reap_1(100, NULL, {later})") == 1
        application.rollback()
        assert value(duty, f"SELECT redrive.reap_1(100, NULL, {later})") == 1


def _wait_until_waiting(observer: Connection, connection: Connection) -> None:
    wait_until(lambda: is_waiting(observer, connection), seconds=20, what="it to wait for a lock")
