"""One word for one thing: what the code names, the glossary explains."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from redrive.events import FACTS, STEPS
from redrive.message import CancelAnswer, Closed, ParkReason, Priority, State
from redrive.policy import SettlementKind

ROOT = Path(__file__).parents[2]
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
TABLES = ROOT / "src" / "redrive" / "store" / "sql" / "tables"


def explained() -> set[str]:
    """Every word that stands in the glossary as code."""
    return {word for span in re.findall(r"`([^`]+)`", GLOSSARY) for word in re.split(r"[\s,|/=()]+", span)}


def columns() -> set[str]:
    """Names of the tables and of their columns, as the migrations declare them."""
    sql = "\n".join(path.read_text(encoding="utf-8") for path in sorted(TABLES.glob("*.sql")))
    tables = re.findall(r"CREATE (?:UNLOGGED )?TABLE redrive\.(\w+) \(\n(.*?)\n\)", sql, re.DOTALL)
    found = {name for name, _ in tables}
    for _, body in tables:
        found |= set(re.findall(r"^ {4}([a-z_0-9]+) +[a-z]", body, re.MULTILINE))
    return found


@pytest.mark.req("G-28")
def test_every_state_answer_and_settlement_is_in_the_glossary() -> None:
    words = {w.value for enum in (State, Closed, ParkReason, Priority, CancelAnswer, SettlementKind) for w in enum}
    assert words - explained() == set()


def test_every_table_and_column_is_in_the_glossary() -> None:
    assert len(columns()) > 100
    assert columns() - explained() == set()


def test_every_event_is_in_the_glossary() -> None:
    assert {*STEPS, *FACTS} - explained() == set()
