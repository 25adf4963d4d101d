"""The uploads of a run by its seed: cases with five files each, some damaged after their upload, some cases deleted."""

from __future__ import annotations

import csv
import io
import random
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

ROWS: Final = 1000
FILES_OF_ROW: Final = 5
CORRUPTED_SHARE: Final = 0.03
DELETED_SHARE: Final = 0.01
LINE_BYTES: Final = 64
HEAD: Final = b"%PDF-1.7\n"


class Stored(NamedTuple):
    """What an upload made of a file."""

    id: UUID
    row_id: UUID
    key: str


@dataclass(frozen=True)
class File:
    """id, key: before the upload they are no more than the plan's. name: in the archive."""

    id: UUID
    name: str
    key: str
    content: bytes
    is_corrupted: bool


@dataclass(frozen=True)
class Row:
    id: UUID
    case: UUID
    is_deleted: bool
    files: Sequence[File]


@dataclass(frozen=True)
class Job:
    id: UUID
    number: int
    rows: Sequence[Row]

    @property
    def files(self) -> Iterator[File]:
        for row in self.rows:
            yield from row.files

    @property
    def archive(self) -> str:
        return f"evidence-{self.number:03}.zip"

    def write(self, place: Path) -> Path:
        """The archive as the merchant sends it."""
        listing = io.StringIO()
        lines = csv.writer(listing)
        lines.writerow(["case_id", "files"])
        for row in self.rows:
            lines.writerow([row.case, "|".join(file.name for file in row.files)])
        path = place / self.archive
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("cases.csv", listing.getvalue())
            for file in self.files:
                archive.writestr(file.name, file.content)
        return path

    def uploaded(self, id: UUID, found: Mapping[str, Stored]) -> Job:
        """With the ids that the upload gave. found: by the name of a file."""
        rows = []
        for row in self.rows:
            files = [replace(file, id=found[file.name].id, key=found[file.name].key) for file in row.files]
            rows.append(replace(row, id=found[row.files[0].name].row_id, files=files))
        return replace(self, id=id, rows=rows)

    def damage(self, place: Path) -> None:
        """Stored files that are to be corrupted change after their upload."""
        for file in self.files:
            if file.is_corrupted:
                (place / file.key).write_bytes(b"?" + file.content[1:])


def planned(*, seed: int, rows: int, jobs: int) -> list[Job]:
    """The damaged files and deleted cases are shares of all, and at least one of each."""
    chance = random.Random(f"{seed}/evidence")
    corrupted = set(chance.sample(range(rows * FILES_OF_ROW), max(1, round(rows * FILES_OF_ROW * CORRUPTED_SHARE))))
    deleted = set(chance.sample(range(rows), max(1, round(rows * DELETED_SHARE))))
    made = []
    for number in range(jobs):
        mine = range(rows * number // jobs, rows * (number + 1) // jobs)
        made.append(Job(_id(chance), number, [_planned_row(chance, one, corrupted, one in deleted) for one in mine]))
    return made


def _planned_row(chance: random.Random, number: int, corrupted: set[int], is_deleted: bool) -> Row:
    case, files = _id(chance), []
    for place in range(FILES_OF_ROW):
        id = _id(chance)
        is_corrupted = number * FILES_OF_ROW + place in corrupted
        content = HEAD + chance.randbytes(LINE_BYTES)
        files.append(File(id, f"{case}/receipt-{place + 1}.pdf", "", content, is_corrupted))
    return Row(_id(chance), case, is_deleted, files)


def _id(chance: random.Random) -> UUID:
    return UUID(bytes=chance.randbytes(16), version=4)
