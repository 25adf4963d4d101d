"""A relay that dies leaves in doubt only the money that it had begun to send (P-05)."""

from __future__ import annotations

import signal

import pytest

from redrive.prove.environment import Environment
from tests.crash.lives import enqueue, gate, open_gate, rows, stop, wait_at_gate, wait_count, wait_quiet

PAYING = "tests.crash.apps:paying"


@pytest.mark.req("P-05")
def test_a_kill_leaves_in_doubt_only_the_money_that_was_begun(stage: Environment) -> None:
    """Quick payments first: the relay then knows that it could work off all that is due, and must not claim it."""
    enqueue(stage, "quick", "bank", count=30)
    relay = stage.relay("killed", app=PAYING, environment=gate(stage))
    wait_count(stage, "closed", 30)
    enqueue(stage, "slow", "bank", count=200, gate="of")
    wait_at_gate(stage, "of", 10)
    relay.signal(signal.SIGKILL)
    relay.wait(20)
    assert rows(stage, "SELECT count(*) FROM redrive.lease") == [(10,)]
    open_gate(stage, "of")
    healer = stage.relay("healer", app=PAYING, environment=gate(stage))
    wait_quiet(stage)
    assert stop(healer) == 0
    assert rows(stage, "SELECT reason, count(*) FROM redrive.parked GROUP BY reason") == [("held", 10)]
    assert stage.counts()["closed"] == 220
