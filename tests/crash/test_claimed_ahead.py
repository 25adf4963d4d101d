"""A relay that dies leaves in doubt only the money that it had begun to send (P-05)."""

from __future__ import annotations

import signal

import pytest

from redrive.prove.environment import Environment
from tests.crash.lives import enqueue, gate, open_gate, rows, stop, wait_at_gate, wait_count, wait_quiet

PAYING = "tests.crash.apps:paying"


@pytest.mark.req("P-05")
def test_a_kill_leaves_in_doubt_only_the_money_that_was_begun(environment: Environment) -> None:
    """Quick payments first: the relay then knows that it could work off all that is due, and must not claim it."""
    enqueue(environment, "quick", "bank", count=30)
    relay = environment.relay("killed", app=PAYING, environment=gate(environment))
    wait_count(environment, "closed", 30)
    enqueue(environment, "slow", "bank", count=200, gate="of")
    wait_at_gate(environment, "of", 10)
    relay.signal(signal.SIGKILL)
    relay.wait(20)
    assert rows(environment, "SELECT count(*) FROM redrive.lease") == [(10,)]
    open_gate(environment, "of")
    healer = environment.relay("healer", app=PAYING, environment=gate(environment))
    wait_quiet(environment)
    assert stop(healer) == 0
    assert rows(environment, "SELECT reason, count(*) FROM redrive.parked GROUP BY reason") == [("held", 10)]
    assert environment.counts()["closed"] == 220
