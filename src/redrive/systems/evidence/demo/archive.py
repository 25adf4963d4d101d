"""The merchant's archive of the demo: a ZIP with a CSV, and two files for each of three cases."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from uuid import UUID, uuid4

CASES: Final = 3
NAMES: Final = ("invoice.pdf", "receipt.pdf")


def make_archive(path: Path) -> Sequence[UUID]:
    """Returns the cases, in the order of the CSV."""
    cases = [uuid4() for _ in range(CASES)]
    listing = io.StringIO()
    lines = csv.writer(listing)
    lines.writerow(["case_id", "files"])
    for case in cases:
        lines.writerow([case, "|".join(f"{case}/{name}" for name in NAMES)])
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("cases.csv", listing.getvalue())
        for case in cases:
            for name in NAMES:
                archive.writestr(f"{case}/{name}", f"%PDF-1.4\n% {name} of case {case}\n%%EOF\n")
    return cases
