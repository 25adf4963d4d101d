"""`redrive bench`, small: every workload runs; one that lost or doubled a message would fail instead of counting."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from redrive.bench.workloads import Workload
from redrive.operate.cli.bench import ALL
from redrive.operate.cli.main import cli

pytestmark = [pytest.mark.full, pytest.mark.timeout(240)]


@pytest.mark.parametrize("workload", ALL, ids=lambda workload: workload.name)
def test_a_workload_gives_both_its_figures(workload: Workload, database: str) -> None:
    command = ["bench", workload.name, "--scale", "0.02", "--repeat", "1", "--json", "--dsn", database]
    ran = CliRunner().invoke(cli, command, catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    (measured,) = json.loads(ran.stdout)["results"]
    assert measured["workload"] == workload.name
    assert measured["values"].keys() >= {workload.figure, workload.reference}
    assert all(value > 0 for value in measured["values"].values())
