"""A payload that takes its process down takes nobody along; a deploy that fails on everything stops the line."""

from __future__ import annotations

from typing import Any

import pytest

from redrive.prove.app import BUG_VARIABLE
from redrive.prove.environment import Environment
from redrive.prove.script import Script
from redrive.relay.backpressure.bug_breaker import BUGS_IN_A_ROW
from tests.crash.lives import enqueue, key_ids, rows, said, sends, stop, wait_quiet

APP = "tests.crash.apps:crashing"
NEIGHBOURS = 199


def run_until_quiet(environment: Environment, **settings: Any) -> int:
    """As a supervisor would: a relay that dies is started again. How often it died."""
    for deaths in range(10):
        relay = environment.relay(**settings)
        assert environment.wait(lambda one=relay: one.code is not None or environment.is_quiet(), seconds=60.0)  # type: ignore[misc]
        if relay.code is None:
            assert stop(relay) == 0
            return deaths
    raise AssertionError(said(environment))


def enqueue_among_neighbours(environment: Environment, destination: str, do: str) -> str:
    """The id of the one that crashes, in the midst of the others."""
    enqueue(environment, "before", destination, count=100)
    enqueue(environment, "crash", destination, do=do)
    enqueue(environment, "after", destination, count=NEIGHBOURS - 100)
    return key_ids(environment)["crash/0"]


@pytest.mark.req("G-18")
@pytest.mark.req("G-12")
@pytest.mark.parametrize("do", ["exit", "segfault"])
def test_one_crashing_payload_parks_itself_and_its_neighbours_are_delivered_unspent(
    environment: Environment, do: str
) -> None:
    environment.observe()
    crasher = enqueue_among_neighbours(environment, "resend", do)

    deaths = run_until_quiet(environment, app=APP, only=["resend"])

    assert deaths == 1  # after that it ran apart
    assert rows(environment, "SELECT id::text, reason, error_class, crashes FROM redrive.parked") == [
        (crasher, "dead", "CRASHED", 3)
    ]
    # Once among its neighbours, which counts for nobody, and three times alone.
    died = rows(
        environment, "SELECT code FROM redrive.attempt WHERE message_id = %s AND verb = 'reap' ORDER BY 1", crasher
    )
    assert died == [("LEASE_RAN_OUT",), ("WORKER_DIED",), ("WORKER_DIED",), ("WORKER_DIED",)]
    delivered = rows(
        environment, "SELECT spent, count(*) FROM redrive.attempt WHERE closed = 'delivered' GROUP BY spent"
    )
    assert delivered == [(1, NEIGHBOURS)]
    assert crasher not in sends(environment)


@pytest.mark.req("G-13")
@pytest.mark.req("G-18")
def test_where_doubt_is_held_a_crash_holds_what_was_in_flight_and_nothing_is_sent_twice(
    environment: Environment,
) -> None:
    environment.observe(Script(send={"slow": 100}))
    crasher = enqueue_among_neighbours(environment, "hold", "exit")

    deaths = run_until_quiet(environment, app=APP, only=["hold"])

    assert deaths == 1
    held = {id for (id,) in rows(environment, "SELECT id::text FROM redrive.parked WHERE reason = 'held'")}
    reaped = {id for (id,) in rows(environment, "SELECT message_id::text FROM redrive.attempt WHERE verb = 'reap'")}
    assert held == reaped
    assert crasher in held
    assert len(held) > 1
    assert environment.counts()["closed"] == NEIGHBOURS + 1 - len(held)
    assert max(sends(environment).values()) == 1


@pytest.mark.req("G-10")
def test_a_deploy_that_raises_on_everything_pauses_the_destination_and_the_next_one_delivers(
    environment: Environment,
) -> None:
    environment.observe()
    destination, concurrency, relays = "struck-1-bug", 8, 2
    enqueue(environment, "bad-day", destination, count=200)
    bad = [environment.relay(f"bad-{n}", only=[destination], environment={BUG_VARIABLE: "1"}) for n in range(relays)]

    assert environment.wait(lambda: environment.value("SELECT count(*) FROM redrive.relay") == relays, seconds=30)
    paused = "SELECT count(*) FROM redrive.destination WHERE name = %s AND pause_reason = 'bug'"
    assert environment.wait(lambda: environment.value(paused, destination) == 1, seconds=30)
    assert [stop(relay) for relay in bad] == [0] * relays
    counts = environment.counts()
    assert counts["leased"] == 0
    assert BUGS_IN_A_ROW <= counts["parked"] <= relays * (BUGS_IN_A_ROW + concurrency)
    assert counts["pending"] == 200 - counts["parked"]
    assert rows(environment, "SELECT DISTINCT reason, error_class FROM redrive.parked") == [("dead", "UNCLASSIFIED")]

    environment.value("SELECT redrive.resume_1(%s, 'operator', 'rolled back')", destination)
    good = environment.relay("good", only=[destination])
    wait_quiet(environment)
    assert stop(good) == 0
    assert environment.counts()["closed"] == 200 - counts["parked"]
    assert environment.verdict().sentences == []
