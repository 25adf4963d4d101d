"""A unified diff, as the critics read it: the lines that were added, with the number that each has in the new file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

_HUNK: Final = re.compile(r"@@ -\d+(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


class AddedLine(NamedTuple):
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


def numbered(text: str) -> str:
    """The diff with the number of each line that the new file has in front of it, so that a reader need not count."""
    told = []
    lines, in_file = iter(text.split("\n")), False
    for line in lines:
        told.append(line)
        in_file = in_file or line.startswith("diff --git ")
        if in_file and (hunk := _HUNK.match(line)):
            told += [f"{'' if number is None else number:>6} {one}" for number, one in _hunk_lines(lines, hunk)]
    return "\n".join(told)


def _added(lines: Iterator[str], hunk: re.Match[str]) -> Iterator[AddedLine]:
    for number, line in _hunk_lines(lines, hunk):
        if number is not None and line.startswith("+"):
            yield AddedLine(number, line[1:])


def _hunk_lines(lines: Iterator[str], hunk: re.Match[str]) -> Iterator[tuple[int | None, str]]:
    """With the number in the new file; None where it does not have the line."""
    old, number, new = int(hunk[1] or 1), int(hunk[2]), int(hunk[3] or 1)
    end = number + new
    while old > 0 or number < end:
        line = next(lines, None)
        if line is None:
            return
        match line[:1]:
            case "+":
                yield number, line
                number += 1
            case "-":
                yield None, line
                old -= 1
            case "\\":  # no newline at the end of the file
                yield None, line
            case _:
                yield number, line
                old -= 1
                number += 1


def _path_of_header(line: str) -> str:
    return _path(line.rpartition(" ")[2])


def _path(said: str) -> str:
    """Without git's prefix and quotes; empty for /dev/null."""
    plain = said.partition("\t")[0].strip('"')
    return "" if plain == "/dev/null" else plain.removeprefix("b/")
