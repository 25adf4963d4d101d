"""A unified diff, as the critics read it: the lines that were added, with the number that each has in the new file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

_HUNK: Final = re.compile(r"@@ -\d+(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


@dataclass(frozen=True, slots=True)
class AddedLine:
    """number: in the new file, from 1."""

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class FileDiff:
    """path: of the new file. A file that was deleted, or is binary, has no added lines."""

    path: str
    added: Sequence[AddedLine] = field(default_factory=list)

    def has_line(self, number: int) -> bool:
        return any(line.number == number for line in self.added)

    def text_of(self, number: int) -> str:
        return next((line.text for line in self.added if line.number == number), "")


def parse_diff(text: str) -> list[FileDiff]:
    """In the order of the diff. What stands in a hunk is never taken for a header, whatever it looks like."""
    files: list[FileDiff] = []
    lines = iter(text.split("\n"))
    for line in lines:
        if line.startswith("diff --git "):
            files.append(FileDiff(_path_of_header(line), []))
        elif line.startswith("+++ ") and files:
            files[-1] = FileDiff(_path(line[4:]) or files[-1].path, [])
        elif files and (hunk := _HUNK.match(line)):
            files[-1] = FileDiff(files[-1].path, [*files[-1].added, *_added(lines, hunk)])
    return files


def _added(lines: Iterator[str], hunk: re.Match[str]) -> Iterator[AddedLine]:
    old, number, new = int(hunk[1] or 1), int(hunk[2]), int(hunk[3] or 1)
    end = number + new
    while old > 0 or number < end:
        line = next(lines, None)
        if line is None:
            return
        match line[:1]:
            case "+":
                yield AddedLine(number, line[1:])
                number += 1
            case "-":
                old -= 1
            case "\\":  # no newline at the end of the file
                continue
            case _:
                old -= 1
                number += 1


def _path_of_header(line: str) -> str:
    return _path(line.rpartition(" ")[2])


def _path(said: str) -> str:
    """Without git's prefix and quotes; empty for /dev/null."""
    plain = said.partition("\t")[0].strip('"')
    return "" if plain == "/dev/null" else plain.removeprefix("b/")
