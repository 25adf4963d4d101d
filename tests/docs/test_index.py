"""A reader finds every page: each is linked from the index, decisions and runbooks through their directories."""

from __future__ import annotations

import re

from tests.docs.pages import DOCS


def test_every_page_is_linked_from_the_index() -> None:
    directories = {"adr", "runbooks"}
    linked = set(re.findall(r"\]\(([^)#\s]+)", (DOCS / "index.md").read_text(encoding="utf-8")))
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md") if page.parent.name not in directories}
    assert sorted(pages - linked - {"index.md"}) == []
    assert {f"{name}/" for name in directories} <= linked
