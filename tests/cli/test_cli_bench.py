"""`redrive bench`, small: every workload runs; one that lost or doubled a message would fail instead of counting."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from redrive.bench.workloads import LostOrDoubled, Workload, child
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


def test_a_relay_that_ends_before_it_is_ready_is_no_measurement(empty_database: str) -> None:
    """Its database has no schema: what it prints at its end is not taken for the word that it has started."""
    settings = json.dumps({"dsn": empty_database, "destinations": ["ours"], "count": 1})
    with pytest.raises(LostOrDoubled, match="ended with 1 before it was ready"), child("redrive.bench.drain", settings):
        pass
