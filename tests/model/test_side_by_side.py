"""The model promises what PostgreSQL does, and PostgreSQL does what the model promises: the same random lives."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.conformance.subjects import PostgresSubject
from tests.model.side_by_side import SideBySide

EXAMPLES = 60
SOAK_EXAMPLES = int(os.environ.get("REDRIVE_MODEL_EXAMPLES", "3000"))
STEPS = 40

_SETTINGS = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    derandomize=True,
    database=None,
    deadline=None,
    print_blob=False,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture
def machine(database: str) -> Iterator[type[SideBySide]]:
    """The machine on a database of its own; every example starts with both stores empty."""
    with asyncio.Runner() as runner_of_this_test:
        subject = PostgresSubject(database)

        class OnThisDatabase(SideBySide):
            postgres = subject
            runner = runner_of_this_test

        yield OnThisDatabase
        runner_of_this_test.run(subject.__aexit__())
        subject.close_reader()


@pytest.mark.req("G-05")
@pytest.mark.req("G-14")
@pytest.mark.req("G-28")
@pytest.mark.timeout(600)
def test_postgresql_and_the_model_live_the_same_lives(machine: type[SideBySide]) -> None:
    run_state_machine_as_test(machine, settings=_SETTINGS)


@pytest.mark.soak
@pytest.mark.req("G-28")
@pytest.mark.timeout(7200)
def test_postgresql_and_the_model_live_the_same_lives_for_long(machine: type[SideBySide]) -> None:
    long = settings(_SETTINGS, max_examples=SOAK_EXAMPLES, stateful_step_count=2 * STEPS, derandomize=False)
    run_state_machine_as_test(machine, settings=long)
