"""The CSV of an upload: one line for each case, with the files that belong to it.

    case_id,files,types
    7d0c0a3e-6d3b-4f0e-9a0e-2f7a3c1b5e11,case-1/invoice.pdf|case-1/photo.jpg,pdf|jpeg

`types` may be left out, as a column and as a cell. Every line is checked and every fault is reported with its number;
`cross_check` compares what the lines name with what the archive has.

Encoding: by the byte order mark (UTF-8, UTF-16); without one, UTF-8 if the whole file is valid UTF-8, else Latin-1.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from unicodedata import normalize
from uuid import UUID

from redrive.kit.statements import shown
from redrive.systems.evidence.file_types import ALLOWED, FileType, type_named, type_of_suffix
from redrive.systems.evidence.member_rules import fault_of_name, same_name
from redrive.systems.evidence.problems import Problems, refused
from redrive.systems.evidence.upload_limits import UploadLimits

SEPARATOR: Final = "|"
REQUIRED: Final = ("case_id", "files")
COLUMNS: Final = (*REQUIRED, "types")
_BOMS: Final = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file as a line names it. type: declared by the line, else by the suffix of the name."""

    name: str
    type: FileType


@dataclass(frozen=True, slots=True)
class Line:
    """number: of the line in the CSV, from 1; the header is line 1."""

    number: int
    case_id: UUID
    files: Sequence[NamedFile]


def read_manifest(data: bytes, file: str, limits: UploadLimits, problems: Problems) -> list[Line]:
    """The lines that are right; what is wrong with the others goes to `problems`. UploadRefused for a bad header."""
    lines = _numbered(_decoded(data, file), file, limits)
    columns = _header(lines, file, limits)
    found: list[Line] = []
    cases: dict[UUID, int] = {}
    count = 0
    for number, text in lines:
        if not text:
            continue
        count += 1
        if count > limits.lines_max:
            detail = f"the CSV has more than {limits.lines_max} lines; the rest was not read."
            problems.add(file, number, "LINES_TOO_MANY", detail)
            break
        if (line := _Reader(file, number, limits, problems).line(text, columns)) is None:
            continue
        if (earlier := cases.setdefault(line.case_id, number)) != number:
            detail = f"the case {line.case_id} is in line {earlier} already; a case has one line."
            problems.add(file, number, "CASE_DUPLICATE", detail)
        found.append(line)
    if count == 0:
        problems.add(file, None, "MANIFEST_EMPTY", "it has a header and no line; it must have one for each case.")
    return found


def cross_check(lines: Sequence[Line], names: Sequence[str], file: str, problems: Problems) -> None:
    """names: the files of the archive but for the CSV. Each must be named by exactly one line."""
    present = set(names)
    by_key = {same_name(name): name for name in names}
    seen: dict[str, int] = {}
    for line in lines:
        for one in line.files:
            if one.name not in present:
                near = by_key.get(same_name(one.name))
                hint = f"; {shown(near)} is, and names must be equal letter by letter" if near else ""
                detail = f"{shown(one.name)} is not in the archive{hint}."
                problems.add(file, line.number, "FILE_MISSING", detail)
            elif (earlier := seen.setdefault(one.name, line.number)) != line.number:
                detail = f"{shown(one.name)} is named in line {earlier} already; a file belongs to one case."
                problems.add(file, line.number, "FILE_DUPLICATE", detail)
    for name in names:
        if name not in seen:
            problems.add(name, None, "FILE_NOT_MENTIONED", f"no line of {shown(file)} names it.")


def _decoded(data: bytes, file: str) -> str:
    encoding = next((one for bom, one in _BOMS if data.startswith(bom)), None)
    try:
        text = data.decode(encoding or "utf-8")
    except UnicodeDecodeError as error:
        if encoding:
            detail = f"it begins with the mark of {encoding} and byte {error.start} does not fit; save it again."
            raise refused(file, "ENCODING", detail) from None
        text = data.decode("latin-1")
    if "\0" in text:
        detail = "it has NUL characters; UTF-16 must begin with a byte order mark."
        raise refused(file, "ENCODING", detail)
    return text


def _numbered(text: str, file: str, limits: UploadLimits) -> Iterator[tuple[int, str]]:
    for number, ended in enumerate(io.StringIO(text, newline=None), start=1):
        line = ended.removesuffix("\n")
        if len(line) > limits.line_characters_max:
            detail = f"line {number} has {len(line)} characters; at most {limits.line_characters_max} may be."
            raise refused(file, "LINE_TOO_LONG", detail)
        yield number, line


def _header(lines: Iterator[tuple[int, str]], file: str, limits: UploadLimits) -> Sequence[str]:
    """The columns in their order. All that is wrong with them is said at once."""
    _, text = next(lines, (1, ""))
    problems = Problems()
    cells = _Reader(file, 1, limits, problems).cells(text) or []
    columns = [cell.strip().lower() for cell in cells]
    for name in dict.fromkeys(columns):
        if name not in COLUMNS:
            detail = f"the column {shown(name)} is unknown; the columns are {', '.join(COLUMNS)}, separated by commas."
            problems.add(file, 1, "COLUMN_UNKNOWN", detail)
        elif columns.count(name) > 1:
            problems.add(file, 1, "COLUMN_DUPLICATE", f"the column {name} is there {columns.count(name)} times.")
    for name in REQUIRED:
        if name not in columns:
            problems.add(file, 1, "COLUMN_MISSING", f"the column {name} is missing; the first line must name it.")
    problems.raise_any()
    return columns


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads one line; a fault is reported with its place."""

    file: str
    number: int
    limits: UploadLimits
    problems: Problems

    def line(self, text: str, columns: Sequence[str]) -> Line | None:
        cells = self.cells(text)
        if cells is None:
            return None
        if len(cells) != len(columns):
            self._wrong("CELL_COUNT", f"it has {len(cells)} cells; the header has {len(columns)}.")
            return None
        by_column = dict(zip(columns, cells, strict=True))
        case_id, files = self._case_id(by_column["case_id"]), self._files(by_column)
        return None if case_id is None or files is None else Line(self.number, case_id, files)

    def cells(self, text: str) -> list[str] | None:
        """A quoted cell ends in the line that it begins in, so that numbers of lines are true."""
        try:
            return next(csv.reader([text], strict=True), [])
        except csv.Error:
            self._wrong("LINE_SYNTAX", "a quote is not closed in this line, or stands where it must not.")
            return None

    def _case_id(self, cell: str) -> UUID | None:
        given = cell.strip()
        try:
            found = UUID(given)
        except ValueError:
            found = None
        if found is None or str(found) != given.lower():
            self._wrong("CASE_ID_INVALID", f"case_id is {shown(cell)}; it must be a UUID in its form 8-4-4-4-12.")
            return None
        return found

    def _files(self, by_column: dict[str, str]) -> list[NamedFile] | None:
        names, types = _list(by_column["files"]), _list(by_column.get("types", ""))
        before = self.problems.found
        if len(names) > self.limits.files_per_line_max:
            detail = f"it names {len(names)} files; at most {self.limits.files_per_line_max} may be."
            self._wrong("FILES_TOO_MANY", detail)
        elif types and len(types) != len(names):
            self._wrong("TYPES_COUNT", f"it has {len(types)} types for {len(names)} files.")
        elif len(set(names)) != len(names):
            self._wrong("FILE_DUPLICATE", "it names a file twice.")
        else:
            found = [self._file(*pair) for pair in zip(names, types or [""] * len(names), strict=True)]
            if self.problems.found == before:
                return [one for one in found if one is not None]
        return None

    def _file(self, name: str, declared: str) -> NamedFile | None:
        if (fault := fault_of_name(name)) is not None:
            self._wrong(fault[0], f"a file is named {shown(name)}; {fault[1]}.")
            return None
        by_suffix, by_line = type_of_suffix(name), type_named(declared)
        if declared and by_line is None:
            self._wrong("TYPE_UNKNOWN", f"the type {shown(declared)} is unknown; it must be one of {ALLOWED}.")
        elif by_suffix is None:
            self._wrong("TYPE_UNKNOWN", f"{shown(name)} has no suffix of a known type: {ALLOWED}.")
        elif by_line not in (None, by_suffix):
            self._wrong("INVALID_FORMAT", f"{shown(name)} is declared as {by_line}; its suffix says {by_suffix}.")
        else:
            return NamedFile(name, by_suffix)
        return None

    def _wrong(self, rule: str, detail: str) -> None:
        self.problems.add(self.file, self.number, rule, detail)


def _list(cell: str) -> list[str]:
    """NFC: one form for names that look the same, which some systems write in another one into archives."""
    return [normalize("NFC", one.strip()) for one in cell.split(SEPARATOR)] if cell.strip() else []
