"""`redrive prove engine` itself: what it plans, what it reports, and that Ctrl-C leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from redrive.kit.proof import failpoints
from redrive.prove.campaign import FAULTS, Plan
from redrive.prove.config import DEFAULT
from redrive.prove.report import Report
from tests.support.scratch import scratch
from tests.support.waiting import wait_until

# As from a terminal: whoever starts the tests in the background lets them inherit that Ctrl-C is ignored.
COMMAND = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
    " from redrive.operate.cli.prove import command; command(['engine', '--seed', '1', '--scale', '0.05'])"
)
RESTART = "PostgreSQL stopped at once and started"


def processes_of(place: Path) -> list[int]:
    """Everything that runs with this directory in its command line or surroundings."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            known = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        except OSError:
            continue
        if str(place).encode() in known and int(process.name) != os.getpid():
            found.append(int(process.name))
    return found


@pytest.mark.timeout(90)
def test_ctrl_c_ends_every_process_and_takes_every_directory_away() -> None:
    with scratch("redrive-ctrl-c-") as place:
        environment = {**os.environ, "TMPDIR": str(place), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        running = subprocess.Popen(
            [sys.executable, "-c", COMMAND], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            wait_until(lambda: len(list(place.glob("*/*strike*.out"))) >= 3, seconds=60, what="the first strikes")
            running.send_signal(signal.SIGINT)
            assert running.wait(40) != 0
            wait_until(lambda: not processes_of(place), seconds=10, what="its processes to end")
            assert list(place.iterdir()) == []
        finally:
            running.kill()
            running.wait(10)


def test_a_small_plan_still_has_every_failpoint_and_every_kind_of_fault() -> None:
    plan = Plan.of(seed=1, scale=0.05, own_server=True)
    assert {event for event, act in plan.strikes if act == "kill"} == set(failpoints.boundaries())
    assert set(plan.kinds) == set(FAULTS)
    assert min(plan.kinds.values()) >= 1
    whole = Plan.of(seed=1, scale=1, own_server=True)
    assert whole.kinds == {kind: count for kind, (count, _, _) in FAULTS.items()}
    assert sum(act == "kill" for _, act in whole.strikes) == 3 * len(failpoints.boundaries())
    assert plan == Plan.of(seed=1, scale=0.05, own_server=True)
    assert plan != Plan.of(seed=2, scale=0.05, own_server=True)


def test_the_server_of_somebody_else_is_not_stopped() -> None:
    assert RESTART in Plan.of(seed=1, scale=1, own_server=True).kinds
    assert RESTART not in Plan.of(seed=1, scale=1, own_server=False).kinds


def test_the_report_says_what_is_needed_to_judge_it() -> None:
    report = Report(
        seed=7,
        scale=0.5,
        commit="abc",
        server="PostgreSQL 18",
        config=DEFAULT.printed(),
        seconds=12.0,
        quiet_seconds=3.0,
        quiet_seconds_max=32.0,
        counts={"messages": 1000},
        faults={"relay killed at random": 25, "backend terminated": 5},
        destination_faults={"hang": 3},
        points={"claim.start": 1, "claim.stop": 0},
    )
    text = "\n".join(report.lines())
    for part in (
        "--seed 7 --scale 0.5",
        "commit abc",
        "1,000  messages",
        "25  relay killed",
        "lease_seconds 2",
        "10.00%",
    ):
        assert part in text
    assert "claim.stop was never met" in text
    assert report.ok
    bad = replace(report, violations=["[no loss] Message m was acknowledged and is not in the database."])
    assert not bad.ok
    assert "1 violations:\n  [no loss] Message m" in "\n".join(bad.lines())
    assert bad.document()["bound"] == pytest.approx(0.1)
