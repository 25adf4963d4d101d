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


def run_until_quiet(stage: Environment, **settings: Any) -> int:
    """As a supervisor would: a relay that dies is started again. How often it died."""
    for deaths in range(10):
        relay = stage.relay(**settings)
        assert stage.wait(lambda one=relay: one.code is not None or stage.is_quiet(), seconds=60.0)  # type: ignore[misc]
        if relay.code is None:
            assert stop(relay) == 0
            return deaths
    raise AssertionError(said(stage))


def enqueue_among_neighbours(stage: Environment, destination: str, do: str) -> str:
    """The id of the one that crashes, in the midst of the others."""
    enqueue(stage, "before", destination, count=100)
    enqueue(stage, "crash", destination, do=do)
    enqueue(stage, "after", destination, count=NEIGHBOURS - 100)
    return key_ids(stage)["crash/0"]


@pytest.mark.req("G-18")
@pytest.mark.req("G-12")
@pytest.mark.parametrize("do", ["exit", "segfault"])
def test_one_crashing_payload_parks_itself_and_its_neighbours_are_delivered_unspent(
    stage: Environment, do: str
) -> None:
    stage.observe()
    crasher = enqueue_among_neighbours(stage, "resend", do)

    deaths = run_until_quiet(stage, app=APP, only=["resend"])

    assert deaths == 1  # after that it ran apart
    assert rows(stage, "SELECT id::text, reason, error_class, crashes FROM redrive.parked") == [
        (crasher, "dead", "CRASHED", 3)
    ]
    # Once among its neighbours, which counts for nobody, and three times alone.
    died = rows(stage, "SELECT code FROM redrive.attempt WHERE message_id = %s AND verb = 'reap' ORDER BY 1", crasher)
    assert died == [("LEASE_RAN_OUT",), ("WORKER_DIED",), ("WORKER_DIED",), ("WORKER_DIED",)]
    delivered = rows(stage, "SELECT spent, count(*) FROM redrive.attempt WHERE closed = 'delivered' GROUP BY spent")
    assert delivered == [(1, NEIGHBOURS)]
    assert crasher not in sends(stage)


@pytest.mark.req("G-13")
@pytest.mark.req("G-18")
def test_where_doubt_is_held_a_crash_holds_what_was_in_flight_and_nothing_is_sent_twice(stage: Environment) -> None:
    stage.observe(Script(send={"slow": 100}))
    crasher = enqueue_among_neighbours(stage, "hold", "exit")

    deaths = run_until_quiet(stage, app=APP, only=["hold"])

    assert deaths == 1
    held = {id for (id,) in rows(stage, "SELECT id::text FROM redrive.parked WHERE reason = 'held'")}
    reaped = {id for (id,) in rows(stage, "SELECT message_id::text FROM redrive.attempt WHERE verb = 'reap'")}
    assert held == reaped
    assert crasher in held
    assert len(held) > 1
    assert stage.counts()["closed"] == NEIGHBOURS + 1 - len(held)
    assert max(sends(stage).values()) == 1


@pytest.mark.req("G-10")
def test_a_deploy_that_raises_on_everything_pauses_the_destination_and_the_next_one_delivers(
    stage: Environment,
) -> None:
    stage.observe()
    destination, concurrency, relays = "struck-1-bug", 8, 2
    enqueue(stage, "bad-day", destination, count=200)
    bad = [stage.relay(f"bad-{n}", only=[destination], environment={BUG_VARIABLE: "1"}) for n in range(relays)]

    assert stage.wait(lambda: stage.value("SELECT count(*) FROM redrive.relay") == relays, seconds=30)
    paused = "SELECT count(*) FROM redrive.destination WHERE name = %s AND pause_reason = 'bug'"
    assert stage.wait(lambda: stage.value(paused, destination) == 1, seconds=30)
    assert [stop(relay) for relay in bad] == [0] * relays
    counts = stage.counts()
    assert counts["leased"] == 0
    assert BUGS_IN_A_ROW <= counts["parked"] <= relays * (BUGS_IN_A_ROW + concurrency)
    assert counts["pending"] == 200 - counts["parked"]
    assert rows(stage, "SELECT DISTINCT reason, error_class FROM redrive.parked") == [("dead", "UNCLASSIFIED")]

    stage.value("SELECT redrive.resume_1(%s, 'operator', 'rolled back')", destination)
    good = stage.relay("good", only=[destination])
    wait_quiet(stage)
    assert stop(good) == 0
    assert stage.counts()["closed"] == 200 - counts["parked"]
    assert stage.verdict().sentences == []
