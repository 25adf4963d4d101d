"""A system changes the engine's tables by the engine's verbs only: another write would go past lanes and the archive.

Every SQL file and every Python source of a system is read for statements that write. Beside its own tables a system may
write one of the engine's: `destination_owner`, in which it registers the destinations that are its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import redrive
from redrive import systems

ENGINE = Path(redrive.__file__).parent / "store" / "sql" / "tables"
SYSTEMS = Path(systems.__file__).parent
SOURCES = sorted([*SYSTEMS.rglob("*.sql"), *SYSTEMS.rglob("*.py")])
NAME = r"(?:ONLY\s+)?((?:\w+\.)?\w+)"
WRITE = re.compile(
    rf"\b(?:INSERT\s+INTO|DELETE\s+FROM|MERGE\s+INTO|TRUNCATE(?:\s+TABLE)?|ALTER\s+TABLE|DROP\s+TABLE|UPDATE)\s+{NAME}"
)
MADE = re.compile(r"\bCREATE\s+(?:UNLOGGED\s+)?TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?redrive\.(\w+)")
REGISTERED = {"destination_owner"}


def of_the_engine() -> set[str]:
    return {name for path in ENGINE.glob("*.sql") for name in MADE.findall(path.read_text())}


def writes(text: str) -> Iterator[str]:
    """Tables of the engine that the text writes. A name without a schema is the engine's if the engine has it."""
    for found in WRITE.findall(re.sub(r"--[^\n]*", "", text)):
        schema, _, name = found.rpartition(".")
        if schema in ("", "redrive") and name in of_the_engine() - REGISTERED:
            yield name


@pytest.mark.req("G-14", "G-30")
@pytest.mark.parametrize("path", SOURCES, ids=[str(path.relative_to(SYSTEMS)) for path in SOURCES])
def test_no_system_writes_a_table_of_the_engine(path: Path) -> None:
    assert [*writes(path.read_text())] == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("UPDATE pending p SET due_at = now()", ["pending"]),
        ("WITH x AS (DELETE FROM redrive.lease RETURNING 1) SELECT 1", ["lease"]),
        ("INSERT INTO\n    redrive.parked (id) SELECT 1", ["parked"]),
        ("TRUNCATE ONLY message", ["message"]),
        ("ALTER TABLE redrive.attempt DISABLE TRIGGER ALL", ["attempt"]),
        ("-- UPDATE pending\nUPDATE reconciliation r SET clean = true", []),
        ("SELECT 1 FROM pending p WHERE p.id = v_id FOR UPDATE", []),
        ("INSERT INTO redrive.destination_owner (prefix, system) VALUES ('x.', 'x')", []),
        ("UPDATE redrive_reviews.message m SET said = true", []),
    ],
)
def test_such_a_statement_would_be_found(text: str, found: list[str]) -> None:
    assert [*writes(text)] == found


def test_the_tables_of_the_engine_are_known() -> None:
    assert of_the_engine() >= {"message", "body", "pending", "lease", "parked", "attempt", "lane_wake", "inbox"}
