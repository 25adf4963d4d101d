"""The production relay in simulated schedules: nothing that can go wrong between machines breaks a promise.

`python -m tests.simulation` runs as many as one likes; a failure names the command that shows the schedule.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from redrive import policy
from tests.simulation import campaign
from tests.simulation.__main__ import main

ROOT = Path(__file__).parents[2]
EACH = 50
EACH_IN_FULL = 170
SCHEDULES = 300
FULL_SCHEDULES = 2000
SOAK_SCHEDULES = int(os.environ.get("REDRIVE_SCHEDULES", "10000"))


@pytest.mark.req("G-07")
@pytest.mark.req("G-13")
@pytest.mark.req("G-14")
@pytest.mark.req("G-17")
@pytest.mark.req("G-25")
@pytest.mark.req("G-28")
@pytest.mark.parametrize("first", range(0, SCHEDULES, EACH))
def test_every_schedule_keeps_every_promise(first: int) -> None:
    violated = campaign.first_violation(range(first, first + EACH))
    assert violated is None, violated.words


@pytest.mark.full
@pytest.mark.req("G-28")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", range(SCHEDULES, FULL_SCHEDULES, EACH_IN_FULL))
def test_two_thousand_schedules_keep_every_promise(first: int) -> None:
    violated = campaign.first_violation(range(first, first + EACH_IN_FULL))
    assert violated is None, violated.words


@pytest.mark.soak
@pytest.mark.req("G-28")
@pytest.mark.timeout(7200)
def test_thousands_more_keep_every_promise() -> None:
    seeds = range(FULL_SCHEDULES, FULL_SCHEDULES + SOAK_SCHEDULES)
    violated = [verdict.words for verdict in campaign.judge_all(seeds) if verdict.violations]
    assert violated == []


def test_a_violation_names_the_command_that_repeats_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(policy, "after_absent", lambda *_, **__: None)  # "absent" is believed at once
    violated = campaign.first_violation(range(SCHEDULES))
    assert violated is not None
    command = f"python -m tests.simulation --seed {violated.seed}"
    assert command in violated.words
    assert main(command.split()[3:]) == 1
    assert violated.violations[0] in capsys.readouterr().out


def test_the_same_seed_is_the_same_run_whatever_the_order_of_hashes_and_whatever_ran_before() -> None:
    assert digests("range(20)", hash_seed=1) == digests("reversed(range(20))", hash_seed=2)


def digests(seeds: str, *, hash_seed: int) -> list[str]:
    program = f"from tests.simulation.campaign import judge\nfor seed in {seeds}: print(seed, judge(seed).digest)"
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return sorted(done.stdout.splitlines())


def test_a_seed_on_the_command_line_prints_its_schedule() -> None:
    command = [sys.executable, "-m", "tests.simulation", "--seed", "3"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "sends m0 1" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("0 violations")
