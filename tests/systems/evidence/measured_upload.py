"""Run in a process of its own: uploads an archive into a local storage and prints the most memory that it took.

The database is left out: it answers as for a new job. What is measured is the way of the files.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

from redrive.systems.evidence.storage import storage_of
from redrive.systems.evidence.uploading import Transact, Upload, upload


def high_water_kib() -> int:
    """Of this program alone: `ru_maxrss` begins with that of the process which started it."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def main() -> None:
    archive, store = Path(sys.argv[1]), Path(sys.argv[2])
    answers = iter([None, ("new", uuid4())])

    def answered(_: Any) -> Any:
        return next(answers)

    transact: Transact = answered
    storage = storage_of(store.as_uri())
    before = high_water_kib()
    done = upload(transact, storage, Upload(archive=archive, merchant_id="shop-7"))
    peak = high_water_kib()
    stored = sum(one.stat().st_size for one in store.rglob("*") if one.is_file())
    said = {"files": done.artifacts, "before_kib": before, "peak_kib": peak, "stored_bytes": stored}
    print(json.dumps(said))


if __name__ == "__main__":
    main()
