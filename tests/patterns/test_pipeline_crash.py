"""Relays that are killed between and inside the stages of a pipeline: what was settled is never repeated."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import psycopg
import pytest

from redrive.kit.proof.environment import ProofEnvironment
from redrive.kit.proof.failpoints import Failpoint
from tests.patterns.stages import LOG_VARIABLE, pipeline
from tests.support.scratch import scratch

SECONDS_MAX = 80.0
ALL = ["import", "transcode raw.mov", "publish small.mp4"]


@pytest.fixture
def environment(database: str) -> Iterator[ProofEnvironment]:
    with scratch("redrive-stages-") as place:
        variables = {LOG_VARIABLE: str(place / "stages")}
        limits = {"lease_seconds": 1.0, "reap_every_seconds": 0.2}
        with ProofEnvironment(place, database, limits=limits, variables=variables) as made:
            made.app = "tests.patterns.stages:app"
            with psycopg.connect(database) as conn:
                pipeline.start(conn, {"video": 7})
            yield made


def ran(environment: ProofEnvironment) -> list[str]:
    return Path(environment.directory / "stages").read_text("utf-8").splitlines()


def killed_and_healed(environment: ProofEnvironment, event: str, nth: int) -> None:
    killed = environment.relay("killed", failpoint=Failpoint(event=event, nth=nth))
    assert environment.wait(lambda: killed.code == -signal.SIGKILL, seconds=SECONDS_MAX), killed.said.read_text("utf-8")
    environment.relay("healer")
    closed = "SELECT count(*) FROM redrive.attempt WHERE closed = 'delivered' AND EXISTS (TABLE redrive.relay)"
    assert environment.wait(lambda: environment.value(closed) == 1, seconds=SECONDS_MAX)


@pytest.mark.req("G-06")
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_relay_killed_after_it_settled_a_stage_repeats_none(environment: ProofEnvironment, nth: int) -> None:
    killed_and_healed(environment, "settle.stop", nth)
    assert ran(environment) == ALL


@pytest.mark.req("G-06")
@pytest.mark.parametrize("event", ["send.start", "send.stop", "settle.start"])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_relay_killed_inside_a_stage_repeats_at_most_that_one(
    environment: ProofEnvironment, event: str, nth: int
) -> None:
    killed_and_healed(environment, event, nth)
    expected = {stage: 2 if event != "send.start" and place == nth else 1 for place, stage in enumerate(ALL, start=1)}
    assert {stage: len(list(runs)) for stage, runs in groupby(ran(environment))} == expected
