"""Messages come all the time on keys that are being released: at the end no key was forgotten, and all are in order.

A `record` of 3 ms keeps the settle transaction open while producers commit the next message of the same key and other
relays look at it: the moment in which a wake-up can be lost.
"""

from __future__ import annotations

import signal
import sys
from typing import Final

import pytest

from redrive.kit.proof.processes import Process
from redrive.prove.environment import Environment
from redrive.prove.producer import Order
from tests.load.apps import BOOK

APP: Final = "tests.load.apps:app"
KEYS: Final = [f"customer-{number}" for number in range(400)]
RELAYS: Final = 3
PRODUCERS: Final = 3
QUIET_SECONDS: Final = 60.0


def produce(environment: Environment, number: int) -> Process:
    """Two of a key in a row, so that the second often comes while the first is being settled; as fast as relays go."""
    order = Order(
        name=f"producer-{number}",
        count=sys.maxsize,
        destinations=[BOOK],
        plain=True,
        keys=KEYS,
        all_ordered=True,
        in_a_row=2,
        pause_seconds=0.02,
        uneven=True,
        pending_max=40,
    )
    return environment.produce(order)


@pytest.mark.req("G-07")
@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(30, marks=[pytest.mark.full, pytest.mark.timeout(180)]),
        pytest.param(600, marks=[pytest.mark.soak, pytest.mark.timeout(900)]),
    ],
)
def test_under_load_no_key_is_forgotten_and_none_is_out_of_order(environment: Environment, seconds: int) -> None:
    environment.observe()
    relays = [environment.relay(f"relay-{number}", app=APP, only=[BOOK]) for number in range(RELAYS)]
    producers = [produce(environment, number) for number in range(PRODUCERS)]
    environment.wait(lambda: False, seconds=seconds)
    for producer in producers:
        producer.end()

    assert environment.wait(environment.is_quiet, seconds=QUIET_SECONDS), environment.counts()
    for relay in relays:
        relay.signal(signal.SIGTERM)
        assert relay.wait(20) == 0
    verdict = environment.verdict()
    assert verdict.sentences == []
    counts = verdict.counts
    assert counts["messages"] > 2 * len(KEYS)
    assert counts["closed as delivered"] == counts["effects seen"] == counts["messages in order"] == counts["messages"]
