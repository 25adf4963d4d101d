"""Applications call us in transactions of any isolation level, whose looks may be older than what was done since.

The argument of LANES.md needs statements that see what was committed before them. Where the caller's do not, a verb
either fails as PostgreSQL lets such transactions fail, or leaves a token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from uuid import UUID

import psycopg
import pytest

from tests.support.racing import Connection, column, value

RELAY = UUID(int=0xA)
ENQUEUE = "SELECT id FROM redrive.enqueue_1('mail', 'x', p_order_by => 'customer', p_due_at => %s, p_now => %s)"
CLAIM = "SELECT id FROM redrive.claim_1(%s, '{mail}', '{1}', '{10}', 60, p_now => %s) WHERE id IS NOT NULL"
DELIVER = "SELECT id FROM redrive.settle_delivered_1(%s, %s, '{1}', '{5}', '{ref}', '{rules}', '{false}', 60, %s)"
CANCEL = "SELECT redrive.cancel_1(%s, p_now => %s)"
MEND = "SELECT mended FROM redrive.mend_lanes_1(10000, %s)"
NUMBERS = "SELECT sequence FROM redrive.message ORDER BY sequence"

pytestmark = pytest.mark.req("G-07")


@pytest.fixture
def now(database: str) -> datetime:
    """A day ahead of the server's clock, so that it can be passed in everywhere."""
    with psycopg.connect(database) as connection:
        ahead: datetime = value(connection, "SELECT clock_timestamp() + interval '1 day'")
        return ahead


@pytest.fixture
def relay(database: str) -> Iterator[Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("SET lock_timeout = '5s'")
        yield connection


@pytest.fixture(params=["REPEATABLE READ", "SERIALIZABLE"])
def application(database: str, request: pytest.FixtureRequest) -> Iterator[Connection]:
    """A transaction of its own; it has seen nothing yet."""
    with psycopg.connect(database) as connection:
        connection.execute(f"SET TRANSACTION ISOLATION LEVEL {request.param}".encode())
        yield connection


def look(application: Connection) -> None:
    """From here on it sees what was committed until now."""
    value(application, "SELECT count(*) FROM redrive.pending")


def claim(relay: Connection, now: datetime) -> list[UUID]:
    return column(relay, CLAIM, RELAY, now)


def deliver(relay: Connection, id: UUID, now: datetime) -> None:
    assert claim(relay, now) == [id]
    column(relay, DELIVER, RELAY, [id], now)


def cancel(relay: Connection, id: UUID, now: datetime) -> None:
    assert value(relay, CANCEL, id, now) == "cancelled"


@pytest.mark.parametrize("change", [deliver, cancel])
def test_a_message_enqueued_by_a_transaction_older_than_what_became_of_the_one_before_is_found(
    relay: Connection, application: Connection, now: datetime, change: Callable[[Connection, UUID, datetime], None]
) -> None:
    first = value(relay, ENQUEUE, None, now)
    look(application)
    change(relay, first, now)
    following = value(application, ENQUEUE, None, now)
    assert claim(relay, now) == []
    application.commit()
    assert claim(relay, now) == [following]
    assert value(relay, MEND, now) == 0


def test_a_message_enqueued_by_a_transaction_older_than_the_claim_of_the_one_before_waits_for_it(
    relay: Connection, application: Connection, now: datetime
) -> None:
    first = value(relay, ENQUEUE, None, now)
    look(application)
    assert claim(relay, now) == [first]
    following = value(application, ENQUEUE, None, now)
    application.commit()
    assert claim(relay, now) == []
    column(relay, DELIVER, RELAY, [first], now)
    assert claim(relay, now) == [following]


@pytest.mark.parametrize("before", [0, 1])
def test_whoever_cannot_see_the_last_number_of_a_key_takes_none(
    relay: Connection, application: Connection, now: datetime, before: int
) -> None:
    for _ in range(before):
        value(relay, ENQUEUE, None, now)
    look(application)
    value(relay, ENQUEUE, None, now)
    with pytest.raises(psycopg.errors.SerializationFailure):
        value(application, ENQUEUE, None, now)
    application.rollback()
    value(application, ENQUEUE, None, now)
    application.commit()
    assert column(relay, NUMBERS) == list(range(1, before + 3))


def test_a_cancel_by_a_transaction_older_than_the_next_message_lets_that_one_go(
    relay: Connection, application: Connection, now: datetime
) -> None:
    delayed = value(relay, ENQUEUE, now + timedelta(hours=1), now)
    look(application)
    following = value(relay, ENQUEUE, None, now)
    assert claim(relay, now) == [], "its token is used up: the one before it is not due yet"
    assert value(application, CANCEL, delayed, now) == "cancelled"
    application.commit()
    assert claim(relay, now) == [following]


def test_a_cancel_by_a_transaction_older_than_the_claim_of_its_message_fails_and_changes_nothing(
    relay: Connection, application: Connection, now: datetime
) -> None:
    first = value(relay, ENQUEUE, None, now)
    look(application)
    assert claim(relay, now) == [first]
    with pytest.raises(psycopg.errors.SerializationFailure):
        value(application, CANCEL, first, now)
    application.rollback()
    assert value(relay, "SELECT cancel_requested FROM redrive.lease WHERE id = %s", first) is False
