"""No lane is forgotten, and none is starved (LANES.md).

Each promise is shown twice: kept by our SQL, and broken by the shape that the prototype had, so that the test is known
to see the difference. Time is passed in, so nothing here waits for a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

import psycopg
import pytest

from tests.support.racing import Connection, column, value

SHAPES = Path(__file__).parent / "shapes"
RELAY = UUID(int=0xA)
CLAIM = "SELECT id FROM redrive.claim_1(%s, '{mail}', '{1}', %s, 60, p_now => %s) WHERE id IS NOT NULL"
ENQUEUE = "SELECT id FROM redrive.enqueue_1('mail', 'x', p_order_by => %s, p_now => %s)"
DELIVER = "SELECT id FROM redrive.settle_delivered_1(%s, %s, %s, '{5}', '{ref}', '{rules}', %s, 60, %s)"
COMPLETE = """
SELECT count(*) FROM redrive.settle_1(
    %s, 'complete', ARRAY[%s::uuid], '{1}', ARRAY[%s], ARRAY[%s], '{delivered}', '{HTTP_400}', '{NULL}', '{NULL}',
    '{NULL}', '{5}', '{1}', '{0}', '{0}', '{none}', '{false}', '{NULL}', '{NULL}', ARRAY[%s], '{false}', '{false}',
    '{NULL}', '{NULL}', '{NULL}', '{rules}', %s)
"""


class Clock:
    """A time that is passed in, a day ahead of the server's; `later` moves it on."""

    def __init__(self, connection: Connection) -> None:
        self.now: datetime = value(connection, "SELECT clock_timestamp() + interval '1 day'")

    def later(self, seconds: float) -> datetime:
        self.now += timedelta(seconds=seconds)
        return self.now


@pytest.fixture
def relay(database: str) -> Iterator[Connection]:
    """Whoever claims: it must never wait for anybody."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("SET lock_timeout = '5s'")
        yield connection


@pytest.fixture
def settling(database: str) -> Iterator[Connection]:
    """Whoever settles, in a transaction that is still open."""
    with psycopg.connect(database) as connection:
        yield connection


def use(connection: Connection, shape: str) -> None:
    connection.execute((SHAPES / f"{shape}.sql").read_bytes())


def claim(connection: Connection, now: datetime, *, room: int = 10) -> list[UUID]:
    return column(connection, CLAIM, uuid4(), [room], now)


def deliver(connection: Connection, id: UUID, now: datetime) -> None:
    column(connection, DELIVER, RELAY, [id], [1], [False], now)


def deliver_and_ask_for_the_next(connection: Connection, id: UUID, now: datetime) -> None:
    assert column(connection, DELIVER, RELAY, [id], [1], [True], now) == []


def complete(connection: Connection, id: UUID, now: datetime) -> None:
    assert value(connection, COMPLETE, RELAY, id, "close", "delivered", None, now) == 0


def park_and_go_on(connection: Connection, id: UUID, now: datetime) -> None:
    assert value(connection, COMPLETE, RELAY, id, "park", None, "dead", now) == 0


Release = Callable[[Connection, UUID, datetime], None]


def settle_while_the_next_one_comes(relay: Connection, settling: Connection, release: Release) -> tuple[Clock, UUID]:
    """The race of three: A releases the lane and has not committed, the next message commits, C looks, A commits."""
    clock = Clock(relay)
    first = value(relay, ENQUEUE, "customer:1", clock.now)
    assert column(relay, CLAIM, RELAY, [10], clock.later(1)) == [first]
    release(settling, first, clock.later(1))
    following = value(relay, ENQUEUE, "customer:1", clock.now)
    assert claim(relay, clock.later(1)) == []
    settling.commit()
    return clock, following


@pytest.mark.req("G-07")
@pytest.mark.parametrize("release", [deliver, deliver_and_ask_for_the_next, park_and_go_on, complete])
def test_a_message_that_comes_while_its_lane_is_being_released_is_found_without_any_other(
    relay: Connection, settling: Connection, release: Release
) -> None:
    clock, following = settle_while_the_next_one_comes(relay, settling, release)
    assert value(relay, "SELECT mended FROM redrive.mend_lanes_1(10000, %s)", clock.later(1)) == 0
    assert claim(relay, clock.now) == [following]


@pytest.mark.req("G-07")
@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_complete_whose_transaction_is_older_than_the_next_message_leaves_a_token_for_it(
    relay: Connection, settling: Connection, level: str
) -> None:
    clock = Clock(relay)
    first = value(relay, ENQUEUE, "customer:1", clock.now)
    assert column(relay, CLAIM, RELAY, [10], clock.later(1)) == [first]
    settling.execute(f"SET TRANSACTION ISOLATION LEVEL {level}".encode())
    assert value(settling, "SELECT count(*) FROM redrive.pending") == 0
    following = value(relay, ENQUEUE, "customer:1", clock.now)
    assert claim(relay, clock.later(1)) == [], "its lane is busy, and the token is used up"
    complete(settling, first, clock.later(1))
    settling.commit()
    assert value(relay, "SELECT mended FROM redrive.mend_lanes_1(10000, %s)", clock.later(1)) == 0
    assert claim(relay, clock.now) == [following]


@pytest.mark.req("G-07")
def test_a_claim_that_judges_through_an_old_snapshot_would_lose_it_for_good(
    relay: Connection, settling: Connection
) -> None:
    use(relay, "judged_through_one_snapshot")
    clock, following = settle_while_the_next_one_comes(relay, settling, deliver)
    assert claim(relay, clock.later(86_400)) == []
    assert value(relay, "SELECT redrive.state_of(%s)", following) == "pending"
    assert value(relay, "SELECT mended FROM redrive.mend_lanes_1(10000, %s)", clock.now) == 1, "the duty mends it"
    assert claim(relay, clock.now) == [following]


HELD, FREE, ROOM = 8, 20, 8


def held_and_free_lanes(relay: Connection, settling: Connection) -> tuple[Clock, set[UUID]]:
    """Eight lanes with a message each whose release stays open, then twenty that anybody may have."""
    clock = Clock(relay)
    for number in range(HELD):
        value(relay, ENQUEUE, f"held:{number}", clock.now)
    for id in column(relay, CLAIM, RELAY, [HELD], clock.later(1)):
        complete(settling, id, clock.now)
    for number in range(HELD):
        value(relay, ENQUEUE, f"held:{number}", clock.now)
    clock.later(1)
    return clock, {value(relay, ENQUEUE, f"free:{number}", clock.now) for number in range(FREE)}


@pytest.mark.req("G-07")
def test_lanes_that_are_held_open_take_no_room_from_those_that_are_free(
    relay: Connection, settling: Connection
) -> None:
    clock, free = held_and_free_lanes(relay, settling)
    claimed = [claim(relay, clock.later(0.001), room=ROOM) for _ in range(3)]
    assert [len(batch) for batch in claimed] == [8, 8, 4]
    assert set().union(*claimed) == free
    settling.commit()
    assert len(claim(relay, clock.later(0.05), room=ROOM)) == HELD


@pytest.mark.req("G-07")
def test_tokens_put_back_with_their_old_time_would_starve_the_free_lanes(
    relay: Connection, settling: Connection
) -> None:
    use(relay, "put_back_with_its_old_time")
    clock, _ = held_and_free_lanes(relay, settling)
    assert [claim(relay, clock.later(0.001), room=ROOM) for _ in range(20)] == [[]] * 20
