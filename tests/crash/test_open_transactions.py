"""An application's transaction that stays open holds up what it has touched, and nothing else (G-31).

A cancel holds the claim of a message in flight, or the lane of one that waits; an enqueue holds its ordering key. Until
the transaction ends the relay settles, records and claims everything else, and a stop leaves nothing else owned.
"""

from __future__ import annotations

import psycopg
import pytest

from redrive.prove.environment import Environment
from redrive.prove.producer import Order
from tests.crash.lives import (
    enqueue,
    gate,
    key_ids,
    open_gate,
    pass_time,
    rows,
    said,
    sends,
    stop,
    wait_at_gate,
    wait_count,
    wait_quiet,
)

pytestmark = pytest.mark.req("G-31")

GATED = "tests.crash.apps:gated"
RECORDING = "tests.crash.apps:recording"
NEIGHBOURS = 300
CANCEL = "SELECT redrive.cancel_1(%s)"
ENQUEUE = "SELECT redrive.enqueue_1('book', convert_to('{\"record\": \"well\"}', 'utf8'), p_order_by => 'account:1')"
LEASED = "SELECT id::text FROM redrive.lease"


def wait_sent(environment: Environment, count: int) -> None:
    assert environment.wait(lambda: len(sends(environment)) == count, seconds=20), (
        f"{len(sends(environment))} of {count} were sent"
    )


@pytest.mark.req("G-24")
def test_a_cancel_left_open_holds_up_only_its_own_message_which_is_settled_before_any_reap(
    environment: Environment,
) -> None:
    environment.observe()
    enqueue(environment, "held", "gated", gate="shut")
    relay = environment.relay(app=GATED, environment=gate(environment))
    wait_at_gate(environment, "shut", 1)
    (held,) = key_ids(environment).values()
    with psycopg.connect(environment.dsn) as caller:
        assert caller.execute(CANCEL, [held]).fetchone() == ("in_flight",)
        open_gate(environment, "shut")
        wait_sent(environment, 1)
        enqueue(environment, "beside", "neighbour", count=NEIGHBOURS)
        wait_count(environment, "closed", NEIGHBOURS)
        assert rows(environment, LEASED) == [(held,)]
        pass_time(environment, 2.0)  # its lease has run out, and reapers have looked at it
        caller.commit()
    wait_quiet(environment)
    assert stop(relay) == 0, said(environment)
    assert set(sends(environment).values()) == {1}
    assert rows(environment, "SELECT verb, closed, count(*) FROM redrive.attempt GROUP BY 1, 2") == [
        ("settle", "delivered", NEIGHBOURS + 1)
    ]


@pytest.mark.req("G-09")
@pytest.mark.req("G-24")
def test_a_stop_beside_a_cancel_left_open_leaves_nothing_else_owned(environment: Environment) -> None:
    environment.observe()
    enqueue(environment, "held", "gated", gate="shut")
    relay = environment.relay(app=GATED, limits={"stop_seconds": 1.0}, environment=gate(environment))
    wait_at_gate(environment, "shut", 1)
    (held,) = key_ids(environment).values()
    with psycopg.connect(environment.dsn) as caller:
        caller.execute(CANCEL, [held])
        open_gate(environment, "shut")
        wait_sent(environment, 1)
        enqueue(environment, "beside", "neighbour", count=NEIGHBOURS)
        wait_count(environment, "closed", 1)
        assert stop(relay) == 0, said(environment)
        assert rows(environment, LEASED) == [(held,)]
    again = environment.relay(app=GATED, environment=gate(environment))
    wait_quiet(environment)
    assert stop(again) == 0, said(environment)
    assert set(sends(environment).values()) == {1}
    ended = rows(environment, "SELECT closed, in_doubt, count(*) FROM redrive.attempt WHERE closed <> '' GROUP BY 1, 2")
    assert sorted(ended) == [
        ("cancelled", True, 1),  # its lease ran out with nobody left to say that it was delivered
        ("delivered", False, NEIGHBOURS),
    ]


@pytest.mark.req("G-07")
@pytest.mark.req("G-24")
@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_a_cancel_left_open_of_the_message_behind_one_in_flight_keeps_nothing_from_settling(
    environment: Environment, ends: str
) -> None:
    environment.observe()
    gated = {"gate": "shut"}
    environment.enqueue(
        Order(name="held", count=3, destinations=["gated"], plain=True, payload=gated, keys=["k"], all_ordered=True)
    )
    relay = environment.relay(app=GATED, environment=gate(environment))
    wait_at_gate(environment, "shut", 1)
    first, second, third = (id for (id,) in rows(environment, "SELECT id::text FROM redrive.message ORDER BY sequence"))
    with psycopg.connect(environment.dsn) as caller:
        assert caller.execute(CANCEL, [second]).fetchone() == ("cancelled",)
        open_gate(environment, "shut")
        wait_count(environment, "closed", 1)  # the one in flight, although its lane is held
        enqueue(environment, "beside", "neighbour", count=NEIGHBOURS)
        wait_count(environment, "closed", NEIGHBOURS + 1)
        assert rows(environment, LEASED) == []
        getattr(caller, ends)()
    wait_quiet(environment)
    assert stop(relay) == 0, said(environment)
    assert set(sends(environment).values()) == {1}
    assert set(sends(environment)) >= {first, third}
    assert (second in sends(environment)) is (ends == "rollback")
    assert environment.value("SELECT coalesce(sum(mended), 0) FROM redrive.duty") == 0


@pytest.mark.req("G-27")
def test_a_record_that_waits_for_a_key_which_a_producer_holds_is_not_parked_and_keeps_no_other_waiting(
    environment: Environment,
) -> None:
    environment.observe()
    with psycopg.connect(environment.dsn) as producer:
        producer.execute(ENQUEUE)
        enqueue(environment, "follows", "follow", count=12, key="account:1")
        relay = environment.relay(app=RECORDING, environment=gate(environment))
        wait_sent(environment, 12)
        enqueue(environment, "beside", "book", count=50, record="well")
        wait_count(environment, "closed", 50)
        assert environment.counts()["parked"] == 0
        assert environment.counts()["leased"] == 12
        producer.commit()
    wait_quiet(environment)
    assert stop(relay) == 0, said(environment)
    assert environment.counts()["parked"] == 0
    assert environment.counts()["closed"] == 12 + 50 + 1 + 12
    assert set(sends(environment).values()) == {1}


@pytest.mark.req("G-09")
@pytest.mark.req("G-27")
def test_what_cannot_be_recorded_at_a_stop_goes_back_with_its_answer_and_is_not_sent_again(
    environment: Environment,
) -> None:
    environment.observe()
    with psycopg.connect(environment.dsn) as producer:
        producer.execute(ENQUEUE)
        enqueue(environment, "follows", "follow", count=5, key="account:1")
        relay = environment.relay(app=RECORDING, limits={"stop_seconds": 1.0}, environment=gate(environment))
        wait_sent(environment, 5)
        assert stop(relay) == 0, said(environment)
        assert rows(environment, LEASED) == []
        assert environment.value("SELECT count(*) FROM redrive.pending WHERE kept_answer IS NOT NULL") == 5
        producer.commit()
    again = environment.relay(app=RECORDING, environment=gate(environment))
    wait_quiet(environment)
    assert stop(again) == 0, said(environment)
    assert environment.counts()["closed"] == 5 + 1 + 5
    assert set(sends(environment).values()) == {1}
