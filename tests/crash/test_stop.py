"""SIGTERM: nothing new is claimed, what runs is finished or cut off, nothing stays owned, the process ends with 0."""

from __future__ import annotations

import signal

import pytest

from redrive.prove.environment import Environment
from redrive.prove.script import Script
from tests.crash.lives import (
    enqueue,
    gate,
    key_ids,
    open_gate,
    rows,
    said,
    sends,
    stop,
    wait_at_gate,
    wait_count,
    wait_quiet,
)

GATED = "tests.crash.apps:gated"
# Between the reading of the clock and the arrival of the signal a claim may still be under way.
UNDER_WAY_SECONDS = 0.5


@pytest.mark.req("G-09")
def test_sigterm_under_load_claims_nothing_more_and_leaves_nothing_owned(environment: Environment) -> None:
    environment.observe(Script(send={"slow": 100}))
    enqueue(environment, "load", "prove-resend", count=400)
    relay = environment.relay(only=["prove-resend"])
    wait_count(environment, "closed", 20)

    signalled_at = environment.value("SELECT extract(epoch FROM clock_timestamp())::float8")
    assert stop(relay) == 0, said(environment)

    last_claim = environment.value("SELECT extract(epoch FROM max(claimed_at))::float8 FROM redrive.attempt")
    assert last_claim <= signalled_at + UNDER_WAY_SECONDS
    counts = environment.counts()
    assert counts["leased"] == 0
    assert counts["pending"] > 0
    assert environment.value("SELECT count(*) FROM redrive.relay") == 0
    assert environment.value("SELECT count(*) FROM redrive.attempt WHERE verb = 'hand_back' AND spent > 0") == 0
    assert environment.value("SELECT count(*) FROM redrive.attempt WHERE verb = 'reap'") == 0
    assert max(sends(environment).values()) == 1


@pytest.mark.req("G-09")
@pytest.mark.req("G-13")
def test_what_sigterm_cuts_off_is_unknown_and_is_attempted_again(environment: Environment) -> None:
    environment.observe()
    enqueue(environment, "stuck", "gated", count=3, gate="shut")
    relay = environment.relay(app=GATED, limits={"stop_seconds": 0.5}, environment=gate(environment))
    wait_at_gate(environment, "shut", 3)

    assert stop(relay) == 0, said(environment)

    assert environment.counts()["leased"] == 0
    assert rows(
        environment, "SELECT verb, answer, code, in_doubt, count(*) FROM redrive.attempt GROUP BY 1, 2, 3, 4"
    ) == [("settle", "unknown", "CUT_OFF", True, 3)]
    open_gate(environment, "shut")
    again = environment.relay(app=GATED, environment=gate(environment))
    wait_quiet(environment)
    assert stop(again) == 0
    assert environment.counts()["closed"] == 3


@pytest.mark.req("G-09")
@pytest.mark.req("G-18")
def test_sigterm_stops_the_child_that_runs_suspects_and_is_no_crash(environment: Environment) -> None:
    environment.observe()
    enqueue(environment, "suspect", "gated", gate="shut")
    killed = environment.relay(app=GATED, environment=gate(environment))
    wait_at_gate(environment, "shut", 1)
    killed.signal(signal.SIGKILL)
    relay = environment.relay(app=GATED, limits={"stop_seconds": 0.5}, environment=gate(environment))
    wait_at_gate(environment, "shut", 2)
    assert environment.value("SELECT count(*) FROM redrive.lease WHERE alone") == 1

    assert stop(relay) == 0, said(environment)

    assert environment.counts()["leased"] == 0
    assert rows(environment, "SELECT id::text, crashes FROM redrive.pending") == [
        (key_ids(environment)["suspect/0"], 0)
    ]
    assert environment.value("SELECT code FROM redrive.attempt WHERE attempt = 2") == "CUT_OFF"
