"""A relay that was frozen beyond its lease wakes up: it sends nothing more; its late outcome is refused and kept."""

from __future__ import annotations

import os
import signal

import pytest

from redrive.kit.proof.failpoints import Failpoint
from redrive.prove.config import LOOKUP
from redrive.prove.environment import Environment
from redrive.prove.script import Script
from tests.crash.lives import enqueue, gate, open_gate, rows, sends, stop, wait_quiet


def freeze_at(environment: Environment, event: str) -> str:
    """A relay freezes at the boundary with one message in hand, another heals, it wakes up. The message's id."""
    environment.observe()
    enqueue(environment, "one", LOOKUP)
    mark = environment.mark()
    frozen = environment.relay("frozen", only=[LOOKUP], failpoint=Failpoint(event=event, act="stop"), mark=mark)
    assert environment.wait(lambda: frozen.frozen, seconds=20)
    healer = environment.relay("healer", only=[LOOKUP])
    wait_quiet(environment)
    assert environment.counts()["closed"] == 1
    os.kill(frozen.pid, signal.SIGCONT)
    assert [stop(frozen), stop(healer)] == [0, 0]
    return str(rows(environment, "SELECT id::text FROM redrive.message")[0][0])


@pytest.mark.req("G-14")
def test_late_outcome_of_a_frozen_relay_is_refused_and_kept(environment: Environment) -> None:
    message = freeze_at(environment, "send.stop")

    assert rows(environment, "SELECT message_id::text, attempt, answer FROM redrive.late_answer") == [
        (message, 1, "delivered")
    ]
    assert rows(environment, "SELECT attempt, verb, closed FROM redrive.attempt ORDER BY attempt") == [
        (1, "reap", None),
        (2, "settle", "delivered"),
    ]
    assert sends(environment) == {message: 1}  # the other one asked, and found it
    assert environment.verdict().sentences == []


@pytest.mark.req("G-14")
@pytest.mark.parametrize("fault", ["busy", "slow"])
def test_late_outcome_is_refused_while_the_next_attempt_is_under_way(environment: Environment, fault: str) -> None:
    environment.observe(Script(send={fault: 100.0}))
    enqueue(environment, "one", "gated", gate="of", each=True)
    open_gate(environment, "of-1")
    gated = "tests.crash.apps:gated"
    frozen = environment.relay(
        "frozen", app=gated, failpoint=Failpoint(event="send.stop", act="stop"), environment=gate(environment)
    )
    assert environment.wait(lambda: frozen.frozen, seconds=20)
    heir = environment.relay("heir", app=gated, environment=gate(environment))
    under_way = "SELECT count(*) FROM redrive.lease WHERE attempt = 2"
    assert environment.wait(lambda: environment.value(under_way) == 1, seconds=30)

    os.kill(frozen.pid, signal.SIGCONT)

    assert environment.wait(lambda: environment.value("SELECT count(*) FROM redrive.late_answer") == 1, seconds=20)
    assert environment.value(under_way) == 1
    assert stop(frozen) == 0
    for number in (2, 3, 4):
        open_gate(environment, f"of-{number}")
    wait_quiet(environment)
    assert stop(heir) == 0
    assert rows(environment, "SELECT attempt, verb FROM redrive.attempt WHERE attempt <= 2 ORDER BY attempt") == [
        (1, "reap"),
        (2, "settle"),
    ]
    assert environment.verdict().sentences == []


@pytest.mark.req("G-14")
@pytest.mark.parametrize("event", ["dispatch.start", "validate.stop", "send.start"])
def test_a_relay_that_slept_through_its_lease_does_not_send_any_more(environment: Environment, event: str) -> None:
    message = freeze_at(environment, event)

    (sent,) = environment.evidence().sends()
    assert sent["attempt"] > 1  # never by the one that slept; and the other one asked before
    verbs = rows(
        environment, "SELECT attempt, verb FROM redrive.attempt WHERE attempt = 1 OR closed = 'delivered' ORDER BY 1"
    )
    assert verbs == [(1, "reap"), (sent["attempt"], "settle")]
    assert environment.verdict().sentences == []
    assert sends(environment) == {message: 1}
