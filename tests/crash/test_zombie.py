"""A relay that was frozen beyond its lease wakes up: it sends nothing more; its late outcome is refused and kept."""

from __future__ import annotations

import os
import signal

import pytest

from redrive.prove.config import LOOKUP
from redrive.prove.environment import Environment
from redrive.prove.faults import Failpoint
from redrive.prove.script import Script
from tests.crash.lives import enqueue, gate, open_gate, rows, sends, stop, wait_quiet


def freeze_at(stage: Environment, event: str) -> str:
    """A relay freezes at the boundary with one message in hand, another heals, it wakes up. The message's id."""
    stage.observe()
    enqueue(stage, "one", LOOKUP)
    mark = stage.mark()
    frozen = stage.relay("frozen", only=[LOOKUP], failpoint=Failpoint(event=event, act="stop"), mark=mark)
    assert stage.wait(lambda: frozen.frozen, seconds=20)
    healer = stage.relay("healer", only=[LOOKUP])
    wait_quiet(stage)
    assert stage.counts()["closed"] == 1
    os.kill(frozen.pid, signal.SIGCONT)
    assert [stop(frozen), stop(healer)] == [0, 0]
    return str(rows(stage, "SELECT id::text FROM redrive.message")[0][0])


@pytest.mark.req("G-14")
def test_late_outcome_of_a_frozen_relay_is_refused_and_kept(stage: Environment) -> None:
    message = freeze_at(stage, "send.stop")

    assert rows(stage, "SELECT message_id::text, attempt, answer FROM redrive.late_answer") == [
        (message, 1, "delivered")
    ]
    assert rows(stage, "SELECT attempt, verb, closed FROM redrive.attempt ORDER BY attempt") == [
        (1, "reap", None),
        (2, "settle", "delivered"),
    ]
    assert sends(stage) == {message: 1}  # the other one asked, and found it
    assert stage.verdict().sentences == []


@pytest.mark.req("G-14")
@pytest.mark.parametrize("fault", ["busy", "slow"])
def test_late_outcome_is_refused_while_the_next_attempt_is_under_way(stage: Environment, fault: str) -> None:
    stage.observe(Script(send={fault: 100.0}))
    enqueue(stage, "one", "gated", gate="of", each=True)
    open_gate(stage, "of-1")
    gated = "tests.crash.apps:gated"
    frozen = stage.relay(
        "frozen", app=gated, failpoint=Failpoint(event="send.stop", act="stop"), environment=gate(stage)
    )
    assert stage.wait(lambda: frozen.frozen, seconds=20)
    heir = stage.relay("heir", app=gated, environment=gate(stage))
    under_way = "SELECT count(*) FROM redrive.lease WHERE attempt = 2"
    assert stage.wait(lambda: stage.value(under_way) == 1, seconds=30)

    os.kill(frozen.pid, signal.SIGCONT)

    assert stage.wait(lambda: stage.value("SELECT count(*) FROM redrive.late_answer") == 1, seconds=20)
    assert stage.value(under_way) == 1
    assert stop(frozen) == 0
    for number in (2, 3, 4):
        open_gate(stage, f"of-{number}")
    wait_quiet(stage)
    assert stop(heir) == 0
    assert rows(stage, "SELECT attempt, verb FROM redrive.attempt WHERE attempt <= 2 ORDER BY attempt") == [
        (1, "reap"),
        (2, "settle"),
    ]
    assert stage.verdict().sentences == []


@pytest.mark.req("G-14")
@pytest.mark.parametrize("event", ["dispatch.start", "validate.stop", "send.start"])
def test_a_relay_that_slept_through_its_lease_does_not_send_any_more(stage: Environment, event: str) -> None:
    message = freeze_at(stage, event)

    (sent,) = stage.evidence().sends()
    assert sent["attempt"] > 1  # never by the one that slept; and the other one asked before
    verbs = rows(
        stage, "SELECT attempt, verb FROM redrive.attempt WHERE attempt = 1 OR closed = 'delivered' ORDER BY 1"
    )
    assert verbs == [(1, "reap"), (sent["attempt"], "settle")]
    assert stage.verdict().sentences == []
    assert sends(stage) == {message: 1}
