"""Markdown for the reference pages: a table, a paragraph. Used by `tools.reference` and its parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap

WIDTH = 120


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(titles)} |"
    yield f"|{'---|' * len(titles)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def paragraph(text: str) -> Iterator[str]:
    """An empty line, and the words broken between them."""
    yield ""
    yield from wrap(" ".join(text.split()), width=WIDTH, break_long_words=False, break_on_hyphens=False)


def words(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names)) or "–"
