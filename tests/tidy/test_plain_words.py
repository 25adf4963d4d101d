"""Text that a reader meets says who does what, and refers only to what that reader can open.

Checked: the package (docstrings, comments, SQL, help, templates), the documents, `deploy/`, `examples/` and `bench/`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KINDS = {".py", ".sql", ".md", ".html", ".js", ".yml", ".json", ".toml"}
FOLDERS = ("src", "docs", "deploy", "examples", "bench")

MISSING_SUBJECT = re.compile(
    r"\b(?:somebody|nobody|whoever|anybody|who asks|who sees|of itself|long since|who it is)\b", re.IGNORECASE
)
UNREACHABLE = re.compile(
    r"\b[Rr]ulings? \d+|\bI\d\d\b|\bDESIGN\b|\b[Ss]eam S\d|\bRELIABILITY\b|\bSTORAGE\.md|\bREQUIREMENTS\b"
    r"|\bF\d\d\b(?![0-9a-fA-F])"
)
ACCOUNT = re.compile(r"[`'\"]nobody[`'\"]")  # the Unix account is a name, not a missing subject


def texts() -> Iterator[tuple[str, str]]:
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")] + list(ROOT.glob("*.md"))
    for path in sorted(path for path in paths if path.suffix in KINDS and "__pycache__" not in path.parts):
        yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def findings(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{name}:{number}: {line.strip()}"
        for name, text in texts()
        for number, line in enumerate(text.splitlines(), start=1)
        if pattern.search(ACCOUNT.sub("", line))
    ]


@pytest.mark.parametrize("pattern", [MISSING_SUBJECT, UNREACHABLE], ids=["subject", "reference"])
def test_a_sentence_names_who_acts_and_refers_to_what_can_be_opened(pattern: re.Pattern[str]) -> None:
    assert findings(pattern) == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("What somebody may see who sees one tenant only.", True),
        ("Whoever parks a message appends here.", True),
        ("Reduces a Status to one tenant.", False),
        ("refused, kept as evidence (I17)", True),
        ("a message is parked (ruling 6)", True),
        ("the fence (G-14)", False),
        ("DESIGN §6", True),
    ],
)
def test_such_a_line_is_told_from_a_plain_one(line: str, found: bool) -> None:
    assert any(pattern.search(line) for pattern in (MISSING_SUBJECT, UNREACHABLE)) is found
