"""The merchant's archive of the demo: a ZIP with a CSV and the files of three cases. One case is deleted later, and one
stored file is damaged."""

from __future__ import annotations

import csv
import io
import zipfile
from pathlib import Path
from uuid import UUID, uuid4

from redrive.systems.evidence.prove.plan import File, Job, Row

NAMES = ("invoice.pdf", "receipt.pdf")
_PDF = b"%PDF-1.4\n% evidence of case "


def make_archive(place: Path, number: int) -> tuple[Path, Job]:
    """The archive, and its upload: cases 1 to 3 with two files each, of which the first of case 3 is damaged."""
    cases = [uuid4() for _ in range(3)]
    path = place / f"evidence-{number:03}.zip"
    with zipfile.ZipFile(path, "w") as archive:
        listing = io.StringIO()
        lines = csv.writer(listing)
        lines.writerow(["case_id", "files"])
        for case in cases:
            lines.writerow([case, "|".join(_name(case, name) for name in NAMES)])
        archive.writestr("cases.csv", listing.getvalue())
        for case in cases:
            for name in NAMES:
                archive.writestr(_name(case, name), _PDF + f"{case} {name}\n%%EOF\n".encode())
    return path, _read(path, cases, number)


def _read(path: Path, cases: list[UUID], number: int) -> Job:
    rows = []
    with zipfile.ZipFile(path) as archive:
        for place, case in enumerate(cases):
            ids = [uuid4() for _ in NAMES]
            files = [
                File(
                    id,
                    _name(case, name),
                    f"uploads/{id}",
                    archive.read(_name(case, name)),
                    (place, name) == (2, NAMES[0]),
                )
                for id, name in zip(ids, NAMES, strict=True)
            ]
            rows.append(Row(uuid4(), case, place == 1, files))
    return Job(uuid4(), number, rows)


def _name(case: UUID, name: str) -> str:
    return f"{case}/{name}"
