"""The tables of docs/states.md as data, so that tests enumerate what the page promises.

A table is announced by `<!-- table: name -->`; its first column names the rows. Cells are kept as written;
`Cell` reads the grammar of the state tables (`word`, `→ state`, `word → state`, `—`, `part N`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).resolve().parents[1] / "docs/states.md"
NOTHING = "—"


class Cell(NamedTuple):
    """answer: the word that the verb says. state: where the message is afterwards."""

    row: str
    column: str
    text: str

    @property
    def is_later(self) -> bool:
        return self.text.startswith("part ")

    @property
    def answer(self) -> str | None:
        before = self.text.split("→")[0].strip()
        return before if before and before != NOTHING else None

    @property
    def state(self) -> str | None:
        """None: the message stays as it was."""
        return self.text.split("→")[1].strip() if "→" in self.text else None


def cells(table: str) -> list[Cell]:
    """Every cell of a table, row by row."""
    columns, *rows = _rows(table)
    return [Cell(row[0], column, text) for row in rows for column, text in zip(columns[1:], row[1:], strict=True)]


def rows(table: str) -> list[str]:
    return [row[0] for row in _rows(table)][1:]


def columns(table: str) -> list[str]:
    return next(iter(_rows(table)))[1:]


def _rows(table: str) -> Iterator[list[str]]:
    text = PAGE.read_text(encoding="utf-8")
    found = re.search(rf"<!-- table: {table} -->\n((?:\|.*\n)+)", text)
    assert found, f"docs/states.md has no table named {table}."
    for line in found[1].splitlines():
        parts = [part.strip() for part in line.strip("|").split("|")]
        if not set(line) <= set("|-"):
            yield parts
