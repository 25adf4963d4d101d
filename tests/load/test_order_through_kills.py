"""Many keys, every fifth attempt put off, relays killed again and again: each key in order, and none waits for another.

The witness is the observer's log, which is written by a process that nobody kills. Some keys are blocked: their first
messages are put off until all others have ended, which is how it is seen that nobody waits for them.
"""

from __future__ import annotations

import signal
from typing import Final

import pytest

from redrive.kit.proof.processes import Process
from redrive.prove.environment import Environment
from redrive.prove.producer import Order
from redrive.prove.script import Script
from tests.load.apps import GATE_VARIABLE, KEYED

APP: Final = "tests.load.apps:app"
RELAYS: Final = 3
# Every fifth attempt is put off; some take long enough that a kill finds several under way.
ANSWERS: Final = {"later": 20.0, "slow": 10.0}
SECONDS: Final = 300.0
KILLED: Final = -signal.SIGKILL
BLOCKED: Final = [f"blocked-{number}" for number in range(10)]
FREE: Final = [f"free-{number}" for number in range(90)]
# Of the blocked keys: how many, how far the furthest has come, and how many of their messages have ended.
HEADS: Final = """
SELECT count(DISTINCT m.order_by), max(m.sequence), count(a.closed)
  FROM redrive.message m JOIN redrive.attempt a ON a.message_id = m.id WHERE m.order_by LIKE 'blocked-%%'
"""


def start(environment: Environment, name: str) -> Process:
    gate = {GATE_VARIABLE: str(environment.directory / "gate")}
    return environment.relay(name, app=APP, only=[KEYED], environment=gate, limits={"concurrency": 10, "claim_max": 20})


def order(name: str, count: int, keys: list[str]) -> Order:
    return Order(
        name=name,
        count=count,
        destinations=[KEYED],
        plain=True,
        keys=keys,
        all_ordered=True,
        payload={"blocked": keys is BLOCKED},
    )


def wait_closed(environment: Environment, least: int) -> None:
    assert environment.wait(lambda: environment.counts()["closed"] >= least, seconds=SECONDS), environment.counts()


def kill_one_by_one(environment: Environment, relays: list[Process], *, kills: int, messages: int) -> None:
    """Each after so many more messages, so that all of them fall while there is work."""
    for number in range(kills):
        wait_closed(environment, (number + 1) * messages // (kills + 1))
        killed = relays.pop(0)
        killed.signal(signal.SIGKILL)
        assert killed.wait(10) == KILLED
        relays.append(start(environment, f"heir-{number}"))


@pytest.mark.req("G-07")
@pytest.mark.parametrize(
    ("messages", "kills"),
    [
        pytest.param(2_000, 6, marks=[pytest.mark.full, pytest.mark.timeout(300)]),
        pytest.param(10_000, 30, marks=[pytest.mark.soak, pytest.mark.timeout(900)]),
    ],
)
def test_killed_relays_leave_every_key_in_order_and_a_blocked_one_delays_no_other(
    environment: Environment, messages: int, kills: int
) -> None:
    environment.observe(Script(seed=messages, send=ANSWERS, lookup={}))
    environment.enqueue(order("blocked", messages // 10, BLOCKED))
    free = messages - messages // 10
    relays = [start(environment, f"relay-{number}") for number in range(RELAYS)]
    assert environment.wait(lambda: environment.rows(HEADS)[0][0] == len(BLOCKED), seconds=30)
    environment.enqueue(order("at-first", free // 2, FREE))
    producer = environment.produce(order("meanwhile", free - free // 2, FREE))

    kill_one_by_one(environment, relays, kills=kills, messages=free)

    wait_closed(environment, free)
    assert producer.wait(10) == 0
    assert environment.rows(HEADS) == [(len(BLOCKED), 1, 0)], (
        "all others have ended, and those are still at their first"
    )
    (environment.directory / "gate").touch()
    assert environment.wait(environment.is_quiet, seconds=SECONDS), environment.counts()
    for relay in relays:
        relay.signal(signal.SIGTERM)
        assert relay.wait(20) == 0
    verdict = environment.verdict()
    assert verdict.sentences == []
    counts = verdict.counts
    assert counts["closed as delivered"] == counts["messages in order"] == messages
    assert counts["ordering keys"] == len(BLOCKED) + len(FREE)
    assert counts["claims reaped"] > 0
