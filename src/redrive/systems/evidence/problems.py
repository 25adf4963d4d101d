"""What is wrong with an upload: one `Problem` for each fault, with file, line and rule, and `UploadRefused` for all.

`Problems` keeps a bounded number of them and counts the rest. What an uploader wrote is shown quoted and shortened, and
`as_csv` writes a report whose cells no spreadsheet runs as formulas.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, field, fields
from typing import Final

from redrive.errors import UsageError
from redrive.kit.statements import shown

KEPT_MAX: Final = 1000
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True, slots=True)
class Problem:
    """file: the archive, or the name of a file in it. line: of the CSV, from 1; None where it is no line's fault.
    rule: stable, upper case. detail: a sentence with the value and the bound.
    """

    file: str
    line: int | None
    rule: str
    detail: str

    def __str__(self) -> str:
        place = shown(self.file) if self.line is None else f"{shown(self.file)}, line {self.line}"
        return f"{place}: {self.rule}: {self.detail}"


class UploadRefused(UsageError):
    """An upload that cannot be accepted. Nothing was stored.

    problems: at most 1,000 of them, in the order in which they were found. found: how many there are in all.
    """

    code = "UPLOAD_REFUSED"

    def __init__(self, problems: Sequence[Problem], found: int) -> None:
        more = "" if found == 1 else f" There are {found - 1} more problems."
        super().__init__(f"{problems[0]}{more}")
        self.problems, self.found = tuple(problems), found


@dataclass
class Problems:
    """Collects what is wrong. found: also what is beyond the kept ones."""

    kept: list[Problem] = field(default_factory=list)
    found: int = 0

    def add(self, file: str, line: int | None, rule: str, detail: str) -> None:
        self.found += 1
        if len(self.kept) < KEPT_MAX:
            self.kept.append(Problem(file, line, rule, detail))

    def raise_any(self) -> None:
        if self.found:
            raise UploadRefused(self.kept, self.found)


def refused(file: str, rule: str, detail: str) -> UploadRefused:
    """For a fault that makes it impossible to look for others."""
    return UploadRefused([Problem(file, None, rule, detail)], 1)


def as_csv(problems: Iterable[Problem]) -> Iterator[str]:
    """Lines of a CSV report. A cell that a spreadsheet would run begins with an apostrophe."""
    yield _line([one.name for one in fields(Problem)])
    for one in problems:
        yield _line([_inert(cell) for cell in astuple(one)])


def _inert(cell: object) -> str:
    text = "" if cell is None else str(cell)
    return f"'{text}" if text.startswith(_FORMULA) else text


def _line(cells: Sequence[str]) -> str:
    written = io.StringIO()
    csv.writer(written).writerow(cells)
    return written.getvalue()
