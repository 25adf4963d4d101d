"""A transaction that an application leaves open holds what it has touched, and keeps no verb of a relay waiting (G-31).

A cancel holds the lease of a message in flight, or the lane of one that waits. The relay here has a lock timeout, so a
verb that waits fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import psycopg
import pytest

from tests.support.racing import Connection, column, value

pytestmark = pytest.mark.req("G-31")

RELAY = UUID(int=0xA)
ENQUEUE = "SELECT id FROM redrive.enqueue_1(%s, 'x', p_order_by => %s)"
CLAIM = """
SELECT id FROM redrive.claim_1(%s, %s, '{1}', '{10}', 60, p_now => clock_timestamp() + %s::interval)
 WHERE id IS NOT NULL
"""
DELIVER = """
SELECT id, refusal FROM redrive.settle_delivered_1(
    %s, %s, array_fill(1, ARRAY[cardinality(%s::uuid[])]), '{5}', '{ref}', '{rules}', %s, 60, p_wait => %s)
"""
SETTLE = """
SELECT id, result FROM redrive.settle_1(
    %s, 'settle', %s, '{1,1}', ARRAY[%s, %s], '{NULL,NULL}', '{retryable,retryable}', '{BUSY,BUSY}', NULL, NULL,
    NULL, '{5,5}', '{1,1}', '{0,0}', '{60,60}', '{none,none}', '{false,false}', NULL, NULL, '{dead,dead}',
    '{false,false}', '{true,true}', NULL, NULL, NULL, '{rules}', p_wait => false)
"""
HAND_BACK = "SELECT id FROM redrive.hand_back_1(%s, %s, '{1,1}', p_wait => false)"
CANCEL = "SELECT redrive.cancel_1(%s)"
STATE = "SELECT redrive.state_of(%s)"


@pytest.fixture
def relay(database: str) -> Iterator[Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("SET lock_timeout = '3s'")
        yield connection


@pytest.fixture
def application(database: str) -> Iterator[Connection]:
    with psycopg.connect(database) as connection:
        yield connection


def leased(relay: Connection, count: int) -> list[UUID]:
    ids = [value(relay, ENQUEUE, "mail", None) for _ in range(count)]
    assert sorted(claim(relay)) == sorted(ids)
    return ids


def claim(relay: Connection, *, destination: str = "mail", after: str = "1 second") -> list[UUID]:
    return column(relay, CLAIM, RELAY, [destination], after)


def deliver(relay: Connection, ids: list[UUID], *, wait: bool = False, hand_over: bool = False) -> dict[UUID, str]:
    """What was not settled, and what was handed over (with None)."""
    return dict(relay.execute(DELIVER, [RELAY, ids, ids, [hand_over] * len(ids), wait]).fetchall())


@pytest.mark.req("G-24")
@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_deliveries_are_settled_beside_one_whose_cancel_is_open(
    relay: Connection, application: Connection, ends: str
) -> None:
    held, *others = leased(relay, 5)
    assert value(application, CANCEL, held) == "in_flight"
    assert deliver(relay, [held, *others]) == {held: "busy"}
    assert {value(relay, STATE, id) for id in others} == {"delivered"}
    assert deliver(relay, [held]) == {held: "busy"}
    assert value(relay, "SELECT count(*) FROM redrive.late_answer") == 0
    getattr(application, ends)()
    assert deliver(relay, [held]) == {}
    assert value(relay, STATE, held) == "delivered"


@pytest.mark.req("G-24")
@pytest.mark.parametrize(("kind", "state"), [("retry", "pending"), ("park", "parked")])
def test_other_outcomes_are_settled_beside_one_whose_cancel_is_open(
    relay: Connection, application: Connection, kind: str, state: str
) -> None:
    held, other = leased(relay, 2)
    assert value(application, CANCEL, held) == "in_flight"
    assert relay.execute(SETTLE, [RELAY, [held, other], kind, kind]).fetchall() == [(held, "busy")]
    assert (value(relay, STATE, held), value(relay, STATE, other)) == ("leased", state)
    application.commit()
    assert relay.execute(SETTLE, [RELAY, [held, other], kind, kind]).fetchall() == [(other, "repeated")]
    assert value(relay, STATE, held) == ("cancelled" if kind == "retry" else state)


@pytest.mark.req("G-09")
@pytest.mark.req("G-24")
def test_claims_are_handed_back_beside_one_whose_cancel_is_open(relay: Connection, application: Connection) -> None:
    held, other = leased(relay, 2)
    assert value(application, CANCEL, held) == "in_flight"
    assert column(relay, HAND_BACK, RELAY, [held, other]) == [other]
    assert value(relay, "SELECT redrive.fence_1(%s, 1, p_wait => false)", held) is None
    application.commit()
    assert value(relay, "SELECT redrive.fence_1(%s, 1, p_wait => false)", held) is True
    assert column(relay, HAND_BACK, RELAY, [held, other]) == [held]
    assert value(relay, "SELECT redrive.fence_1(%s, 1, p_wait => false)", held) is False
    assert value(relay, STATE, held) == "cancelled"


@pytest.mark.req("G-07")
@pytest.mark.req("G-24")
@pytest.mark.parametrize("ends", ["commit", "rollback"])
@pytest.mark.parametrize("hand_over", [False, True])
def test_a_delivery_is_settled_while_a_cancel_holds_its_lane_and_the_lane_goes_on_afterwards(
    relay: Connection, application: Connection, ends: str, hand_over: bool
) -> None:
    first, second, third = (value(relay, ENQUEUE, "mail", "k") for _ in range(3))
    assert claim(relay) == [first]
    assert claim(relay) == []  # the tokens of the others are used up
    assert value(application, CANCEL, second) == "cancelled"
    assert deliver(relay, [first], hand_over=hand_over) == {}
    assert value(relay, STATE, first) == "delivered"
    assert claim(relay, after="2 seconds") == []  # the lane is held
    getattr(application, ends)()
    assert value(relay, "SELECT mended FROM redrive.mend_lanes_1(10000)") == 0
    assert claim(relay, after="3 seconds") == [third if ends == "commit" else second]


@pytest.mark.req("G-07")
@pytest.mark.req("G-24")
def test_a_lane_whose_next_message_goes_elsewhere_is_not_forgotten_where_settle_could_not_see_the_cancel(
    relay: Connection, application: Connection
) -> None:
    first = value(relay, ENQUEUE, "mail", "k")
    second = value(relay, ENQUEUE, "sms", "k")
    third = value(relay, ENQUEUE, "fax", "k")
    assert claim(relay) == [first]
    for destination in ("mail", "sms", "fax"):
        assert claim(relay, destination=destination) == []  # tokens of a busy lane are used up
    assert value(application, CANCEL, second) == "cancelled"
    assert deliver(relay, [first]) == {}
    application.commit()
    assert claim(relay, destination="fax", after="3 seconds") == [third]
