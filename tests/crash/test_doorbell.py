"""A relay that was killed in its sleep: producers ring for it a little longer, and then no more (G-08)."""

from __future__ import annotations

import signal

import pytest

from redrive.prove.environment import Environment
from redrive.relay.wakeup.idle import MARGIN_SECONDS
from tests.crash.lives import enqueue, stop, wait_count
from tests.support.bells import Ear

pytestmark = pytest.mark.req("G-08")

POLL_SECONDS = 0.25
ASLEEP = "SELECT count(*) FROM redrive.doorbell WHERE idle_until > clock_timestamp()"
RING_AT = "SELECT redrive.ring(NULL, clock_timestamp() + make_interval(secs => %s))"


def test_a_relay_that_was_killed_is_rung_no_longer_than_its_sleep(environment: Environment, database: str) -> None:
    environment.observe()
    relay = environment.relay(only=["prove-resend"], limits={"poll_seconds": POLL_SECONDS})
    assert environment.wait(lambda: environment.value(ASLEEP) == 1, seconds=20), "it never lay down"
    relay.signal(signal.SIGKILL)
    relay.wait(10)
    with Ear(database) as ear:
        environment.rows(RING_AT, POLL_SECONDS + MARGIN_SECONDS)
        assert ear.rings() == 0
    assert environment.value("SELECT count(*) FROM redrive.relay") == 1  # it could not take its leave


def test_another_relay_hears_what_the_dead_one_is_rung_for(environment: Environment) -> None:
    environment.observe()
    dead = environment.relay("dead", only=["prove-resend"], limits={"poll_seconds": 60.0})
    other = environment.relay("other", only=["prove-resend"], limits={"poll_seconds": 60.0})
    assert environment.wait(lambda: environment.value(ASLEEP) == 2, seconds=20), "they never lay down"
    dead.signal(signal.SIGKILL)
    dead.wait(10)
    enqueue(environment, "news", "prove-resend", count=3)
    wait_count(environment, "closed", 3)
    assert stop(other) == 0
