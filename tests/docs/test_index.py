"""A reader finds every page: each is linked from the index, the decisions through their directory."""

from __future__ import annotations

import re

from tests.docs.pages import DOCS


def test_every_page_is_linked_from_the_index() -> None:
    linked = set(re.findall(r"\]\(([^)#\s]+)", (DOCS / "index.md").read_text(encoding="utf-8")))
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md") if page.parent.name != "adr"}
    assert sorted(pages - linked - {"index.md"}) == []
    assert "adr/" in linked
