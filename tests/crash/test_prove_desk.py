"""`redrive prove desk`: what it would find, and that it finds nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from redrive.prove.desk import DeskReport, prove, sending_violations

pytestmark = pytest.mark.req("G-16")

PLACES = {"a": (1, 1), "b": (1, 2), "c": (2, 1)}


def send(id_: str) -> dict[str, Any]:
    return {"log": "request", "call": "send", "id": id_, "token": id_}


def effect(token: str) -> dict[str, Any]:
    return {"log": "effect", "token": token, "reference": "r"}


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([send("a"), effect("a"), send("c"), send("b"), send("x")], None),
        ([send("a"), send("b"), send("a")], "more than once more"),
        ([send("a"), effect("a"), effect("a")], "two effects"),
        ([send("b"), send("a")], "order of 1"),
    ],
)
def test_a_log_with_a_fault_in_it_is_a_violation(lines: list[dict[str, Any]], words: str | None) -> None:
    found = sending_violations(lines, PLACES)
    assert any(words in sentence for sentence in found) if words else not found


def test_the_report_says_what_happened() -> None:
    report = DeskReport(
        seed=7, scale=0.5, commit="abc", server="PostgreSQL 18", seconds=12.0, counts={"failures": 2500}
    )
    text = "\n".join(report.lines())
    assert all(part in text for part in ("--seed 7 --scale 0.5", "commit abc", "2,500  failures", "The audit verifies"))
    bad = replace(report, violations=["A message had two effects."])
    assert (bad.ok, bad.document()["ok"]) == (False, False)
    assert "1 violations:\n  A message had two effects." in "\n".join(bad.lines())


@pytest.mark.full
@pytest.mark.timeout(600)
def test_failures_of_four_causes_are_taken_back_while_relays_are_killed(server_dsn: str) -> None:
    report = prove(seed=7, scale=0.05, dsn=server_dsn, progress=lambda *_: None)
    assert report.violations == []
    assert report.counts["failure groups"] == 4
    assert report.counts["sends"] == report.counts["verified"] == report.counts["failures"] == 250
    assert report.counts["relays killed"] >= 4
