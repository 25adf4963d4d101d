"""The wheel carries what the code reads at run time."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def test_wheel_has_every_file_of_the_package(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(REPOSITORY / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "LICENSE"):
        shutil.copy(REPOSITORY / name, copy / name)
    (copy / "README.md").write_text("# Redrive\n")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=copy,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    packed = {name for name in names_in(wheel) if ".dist-info/" not in name}
    there = {path.relative_to(copy / "src").as_posix() for path in (copy / "src").rglob("*") if path.is_file()}
    assert packed == there
    assert any(name.endswith(".sql") for name in packed)


def names_in(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as file:
        return file.namelist()
