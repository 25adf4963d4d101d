"""Every link between our own pages leads somewhere."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "bench").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
    ]
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    local = [target for target in targets if not target.startswith(("http:", "https:", "mailto:"))]
    assert [target for target in local if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_files_that_are_named_exist(page: Path) -> None:
    """`relay/loop.py` in a page is a file of the package, of its SQL, or of the repository."""
    named = re.findall(r"`([a-z_/]+/[a-z_0-9]+\.(?:py|sql))`", page.read_text(encoding="utf-8"))
    homes = [page.parent, ROOT, ROOT / "src" / "redrive", ROOT / "src" / "redrive" / "store" / "sql"]
    assert [name for name in named if not any((home / name).exists() for home in homes)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_tests_that_are_named_exist(page: Path) -> None:
    """A guarantee names the test that fails without it; the name must not outlive the test."""
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"\b(test_[a-z_0-9]{12,})\b(?!\.py)", text))
    own = set(
        re.findall(r"^(?:async )?def (test_\w+)\(", text, re.MULTILINE)
    )  # an example of how a user would write one
    assert sorted(named - own - _tests()) == []


@cache
def _tests() -> frozenset[str]:
    sources = (path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    return frozenset(name for text in sources for name in re.findall(r"def (test_\w+)\(", text))
