"""Relays that are killed between and inside the stages of a pipeline: what was settled is never repeated.

The leases and duties of a killed relay are ended by hand, so that no lease of a living one runs out on a busy machine.
A relay that heals runs the message in a child, as a suspect: what is waited for is the message's own state.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from redrive.kit.proof.environment import ProofEnvironment
from redrive.kit.proof.failpoints import Failpoint
from tests.patterns.stages import LOG_VARIABLE, pipeline
from tests.support.scratch import scratch

SECONDS_MAX = 80.0
LOOK_SECONDS = 0.2  # each look is a connection of its own
LIMITS = {"lease_seconds": 60.0, "reap_every_seconds": 0.2}
RUNS = ["import", "transcode raw.mov", "publish small.mp4"]
STAGES = ["videos.import", "videos.transcode", "videos.publish"]


@pytest.fixture
def environment(database: str) -> Iterator[ProofEnvironment]:
    with scratch("redrive-stages-") as place:
        variables = {LOG_VARIABLE: str(place / "stages")}
        with ProofEnvironment(place, database, limits=LIMITS, variables=variables) as made:
            made.app = "tests.patterns.stages:app"
            with psycopg.connect(database) as conn:
                pipeline.start(conn, {"video": 7})
            yield made


def killed(environment: ProofEnvironment, point: Failpoint) -> None:
    relay = environment.relay("killed", failpoint=point)
    died = environment.wait(lambda: relay.code == -signal.SIGKILL, seconds=SECONDS_MAX)
    assert died, relay.said.read_text("utf-8")


def healed(environment: ProofEnvironment) -> None:
    # A lease is reaped when the server, too, has been ready for its length: hence a short one.
    environment.rows("UPDATE redrive.lease SET until = clock_timestamp(), lease_seconds = 0.1 RETURNING 1")
    environment.rows("UPDATE redrive.duty SET holder = NULL, holder_until = NULL RETURNING 1")
    environment.relay("healer")
    closed = environment.wait(
        lambda: environment.counts()["closed"] == 1, seconds=SECONDS_MAX, every_seconds=LOOK_SECONDS
    )
    assert closed


def ran(environment: ProofEnvironment) -> list[str]:
    return Path(environment.directory / "stages").read_text("utf-8").splitlines()


def begun_by_the_killed(environment: ProofEnvironment) -> list[str]:
    """The stages whose claims were taken back."""
    return [stage for (stage,) in environment.rows("SELECT destination FROM redrive.attempt WHERE verb = 'reap'")]


def settled(environment: ProofEnvironment) -> list[tuple[Any, ...]]:
    """The destination and the worker of each stage that is done, in the order of their commits."""
    return environment.rows(
        "SELECT destination, worker FROM redrive.attempt"
        " WHERE settlement = 'advance' OR closed = 'delivered' ORDER BY completed_at"
    )


@pytest.mark.req("G-06")
@pytest.mark.parametrize(
    ("point", "done", "runs"),
    [
        (Failpoint(event="settle.stop", nth=1), 1, RUNS),
        (Failpoint(event="settle.stop", nth=2), 2, RUNS),
        (Failpoint(event="send.start", nth=2), 1, RUNS),
        (Failpoint(event="send.stop", nth=3), 2, [*RUNS, RUNS[2]]),
    ],
    ids=["import settled", "transcode settled", "before transcode ran", "after publish ran"],
)
def test_after_a_kill_another_relay_goes_on_and_no_settled_stage_runs_again(
    environment: ProofEnvironment, point: Failpoint, done: int, runs: list[str]
) -> None:
    killed(environment, point)
    before = settled(environment)
    assert [stage for stage, _ in before] == STAGES[:done]
    assert environment.counts()["closed"] == 0
    healed(environment)
    after = settled(environment)
    assert [stage for stage, _ in after] == STAGES
    assert after[:done] == before
    assert not {worker for _, worker in after[done:]} & {worker for _, worker in before}
    if point.event == "settle.stop" and begun_by_the_killed(environment) == STAGES[done : done + 1]:
        # Between the commit and its event the relay had claimed the next stage; that may have run before the kill.
        assert ran(environment) in (runs, [*runs[: done + 1], *runs[done:]])
    else:
        assert ran(environment) == runs
