"""The memory of an upload does not grow with its archive. What was measured is printed (pytest -s)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

ROOT = Path(__file__).parents[3]
MIB = 2**20
GROWTH_MAX_KIB = 8 * 1024


def large_archive(path: Path, files: int, mib: int, method: int) -> int:
    """An archive of PDF files of so many MiB each; the sum of their sizes."""
    piece = os.urandom(MIB)
    with zipfile.ZipFile(path, "w", method, compresslevel=1) as archive:
        archive.writestr("cases.csv", "case_id,files\n" + "".join(f"{uuid4()},{one}.pdf\n" for one in range(files)))
        for one in range(files):
            with archive.open(f"{one}.pdf", "w") as member:
                member.write(b"%PDF-1.7\n")
                for _ in range(mib):
                    member.write(piece)
    return files * (mib * MIB + 9)


def measured(folder: Path, files: int, mib: int, method: int) -> dict[str, Any]:
    folder.mkdir()
    archive, store = folder / "evidence.zip", folder / "store"
    size = large_archive(archive, files, mib, method)
    command = [sys.executable, "-m", "tests.systems.evidence.measured_upload", str(archive), str(store)]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    print(f"archive {archive.stat().st_size} bytes, {said}")
    assert (said["files"], said["stored_bytes"]) == (files, size)
    assert sorted(one.name for one in folder.iterdir()) == ["evidence.zip", "store"]
    return said


@pytest.mark.req("E-01")
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED], ids=["stored", "deflate"])
def test_ten_times_the_archive_takes_no_more_memory(method: int, tmp_path: Path) -> None:
    small = measured(tmp_path / "small", 2, 8, method)
    large = measured(tmp_path / "large", 4, 40, method)
    assert large["peak_kib"] - small["peak_kib"] < GROWTH_MAX_KIB


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.req("E-01")
def test_an_archive_of_2_gb_takes_no_more_memory_than_a_small_one(tmp_path: Path) -> None:
    small = measured(tmp_path / "small", 2, 8, zipfile.ZIP_STORED)
    large = measured(tmp_path / "large", 25, 90, zipfile.ZIP_STORED)
    assert large["peak_kib"] - small["peak_kib"] < GROWTH_MAX_KIB
