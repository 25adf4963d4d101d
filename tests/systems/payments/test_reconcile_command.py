"""`redrive payments reconcile` and what it prints: nothing wrong is 0, findings are 6, a rail that is away is 7."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result

from redrive.operate.cli import output
from redrive.operate.cli.main import cli
from redrive.operate.documents import plain
from redrive.systems import payments
from tests.systems.payments.conftest import instruction
from tests.systems.payments.rails import order, post, running
from tests.systems.payments.test_prove import REPORT
from tools import documents

FILE = """
[payments.rails.sepa]
url = "{url}"
has_statement = {has_statement}
egress = {{ allow = ["127.0.0.0/8"], schemes = ["http"] }}
"""


@pytest.fixture
def place(paying: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A directory to work in; what is printed with `--json` is compared with its schema."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDRIVE_DSN", paying)
    printed = output.document

    def document(name: str, values: Mapping[str, Any], **options: Any) -> None:
        shown = plain(values)
        documents.seen(name, {"schema": f"redrive.{name}/v1", **shown})
        printed(name, values, **options)

    monkeypatch.setattr(output, "document", document)
    root = logging.getLogger()
    level = root.level
    yield tmp_path
    root.setLevel(level)
    for handler in [one for one in root.handlers if one.get_name() == "redrive"]:
        root.removeHandler(handler)


def reconcile(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["payments", "reconcile", "--lag-seconds", "0", *arguments])


async def test_what_nobody_asked_for_is_a_finding_and_exits_with_6(paying: str, participant: str, place: Path) -> None:
    with psycopg.connect(paying) as conn:
        payments.submit(conn, instruction(participant))
    async with running(place / "rail.log") as rail:
        (place / "redrive.toml").write_text(FILE.format(url=rail.url, has_statement="true"))
        clean = await asyncio.to_thread(reconcile, "--json")
        assert (clean.exit_code, json.loads(clean.stdout)["rails"][0]["findings"]) == (0, []), clean.output
        await post(rail.url, order("stranger"))
        found = await asyncio.to_thread(reconcile, "--json")
        assert found.exit_code == 6
        (finding,) = json.loads(found.stdout)["rails"][0]["findings"]
        assert (finding["kind"], finding["evidence"]["ledger"][0]["token"]) == ("unexplained", "stranger")
        shown = await asyncio.to_thread(reconcile)
        assert (shown.exit_code, "no intent asked for it" in shown.stdout) == (6, True)


def test_a_rail_that_does_not_answer_is_unreachable(place: Path) -> None:
    (place / "redrive.toml").write_text(FILE.format(url="http://127.0.0.1:9", has_statement="true"))
    assert reconcile().exit_code == 7


def test_rails_without_a_statement_leave_nothing_to_compare(place: Path) -> None:
    (place / "redrive.toml").write_text(FILE.format(url="http://127.0.0.1:9", has_statement="false"))
    assert reconcile().exit_code not in (0, 6, 7)


def test_the_document_of_the_proof_keeps_its_keys() -> None:
    for report in (REPORT, replace(REPORT, commit=None, violations=["1 were never paid: pay-1."])):
        document = {"schema": "redrive.prove_system/v1", "system": "payments", **report.document()}
        documents.seen("prove_system", plain(document))


def test_faults_that_are_none_are_refused_before_a_rail_starts(tmp_path: Path) -> None:
    refused = CliRunner().invoke(
        cli, ["payments", "rail", "--ledger", str(tmp_path / "x.log"), "--faults", "nonsense=5"]
    )
    assert refused.exit_code == 2
    assert not (tmp_path / "x.log").exists()
