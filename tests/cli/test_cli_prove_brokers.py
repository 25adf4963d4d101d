"""`redrive prove brokers` on the command line: what it teaches, refuses and prints."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from redrive.errors import SettingsError
from redrive.kit.proof import brokers
from redrive.kit.proof.brokers import rabbitmq
from redrive.operate.cli import prove as command
from redrive.operate.cli.main import cli
from redrive.prove.brokers import prove
from redrive.prove.brokers.report import BrokersReport
from tools import documents

pytestmark = pytest.mark.req("G-23")

REPORT = BrokersReport(
    seed=7,
    scale=0.5,
    commit=None,
    server="x",
    seconds=1.5,
    counts={"messages": 5},
    brokers={"nats": {"committed": 5}},
    faults={"nats": {"worker killed": 2}},
    violations=[],
)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["prove", "brokers", *arguments])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the proof was asked for; it is not run."""
    calls: list[dict[str, Any]] = []

    def note(**options: Any) -> BrokersReport:
        calls.append(options)
        return REPORT if options["seed"] == REPORT.seed else replace(REPORT, commit="a", violations=["nats: [lost] a"])

    monkeypatch.setattr(prove, "prove", note)
    return calls


def test_the_command_line_knows_every_broker_of_the_kit() -> None:
    assert command.BROKERS == brokers.BROKERS
    assert "[nats|redis|rabbitmq|kafka]" in run("--help").output
    assert run("--broker", "zeromq").exit_code == 2


def test_the_help_says_what_is_done_and_what_exit_code_1_means() -> None:
    text = " ".join(run("--help").output.split())
    for part in ("cut between publish and confirm", "killed 30 times", "redrive[prove]", "Exit code 1", "--scale 0.05"):
        assert part in text


def test_exit_codes_tell_a_broken_promise_from_none(asked: list[dict[str, Any]]) -> None:
    assert run("--broker", "nats", "--seed", "7").exit_code == 0
    assert run("--broker", "nats", "--seed", "8").exit_code == 1
    assert [call["brokers"] for call in asked] == [["nats"], ["nats"]]


def test_a_broker_that_cannot_run_here_is_left_out_or_refused_where_it_is_named(
    monkeypatch: pytest.MonkeyPatch, asked: list[dict[str, Any]]
) -> None:
    monkeypatch.setattr(rabbitmq, "missing", lambda: "there is no rabbitmq-server.")
    named = run("--broker", "nats", "--broker", "rabbitmq")
    assert (named.exit_code, asked) == (2, [])
    assert "rabbitmq cannot run here: there is no rabbitmq-server." in named.stderr
    every = run("--seed", "7")
    assert asked[0]["brokers"] == ["nats", "redis", "kafka"]
    assert "rabbitmq cannot run here" in every.stderr


def test_a_client_that_is_not_installed_is_named_with_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def import_module(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name}", name="nats")

    monkeypatch.setattr(importlib, "import_module", import_module)
    with pytest.raises(SettingsError, match=r"nats is not installed; pip install 'redrive\[prove\]'"):
        brokers.kind("nats")


def test_the_document_of_the_proof_keeps_its_keys() -> None:
    for report in (REPORT, replace(REPORT, commit="a", violations=["nats: [lost] a"])):
        documents.seen("prove_brokers", {"schema": "redrive.prove_brokers/v1", **report.document()})
