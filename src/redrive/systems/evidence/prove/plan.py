"""The uploads of a run by its seed: cases with five files each, some damaged after their upload, some cases deleted."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final
from uuid import UUID

ROWS: Final = 1000
FILES_OF_ROW: Final = 5
CORRUPTED_SHARE: Final = 0.03
DELETED_SHARE: Final = 0.01
LINE_BYTES: Final = 64


@dataclass(frozen=True)
class File:
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

    def store(self, place: Path) -> None:
        """As they were uploaded; those that are corrupted were changed since."""
        for file in self.files:
            path = place / file.key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"?" + file.content[1:] if file.is_corrupted else file.content)

    def values(self, idempotency_key: str) -> tuple[str, str]:
        """Of `insert_upload_1`: the job and its rows."""
        digest = sha256(self.id.bytes).hexdigest()
        job = {
            "file_job_id": str(self.id),
            "idempotency_key": idempotency_key,
            "merchant_id": "merchant-7",
            "notify_mail": "merchant@example.org",
            "archive_name": self.archive,
            "archive_sha256": digest,
            "archive_size_bytes": sum(len(file.content) for file in self.files),
        }
        rows = [_row(number, row) for number, row in enumerate(self.rows, 2)]
        return json.dumps(job), json.dumps(rows)


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
    files = []
    for place in range(FILES_OF_ROW):
        id = _id(chance)
        is_corrupted = number * FILES_OF_ROW + place in corrupted
        files.append(File(id, f"receipt-{place + 1}.pdf", f"uploads/{id}", chance.randbytes(LINE_BYTES), is_corrupted))
    return Row(_id(chance), _id(chance), is_deleted, files)


def _id(chance: random.Random) -> UUID:
    return UUID(bytes=chance.randbytes(16), version=4)


def _row(number: int, row: Row) -> dict[str, object]:
    return {
        "file_job_row_id": str(row.id),
        "row_number": number,
        "case_id": str(row.case),
        "artifacts": [
            {
                "artifact_id": str(file.id),
                "file_name": file.name,
                "file_type": "application/pdf",
                "file_size_bytes": len(file.content),
                "s3_key": file.key,
                "sha256": sha256(file.content).hexdigest(),
            }
            for file in row.files
        ],
    }
