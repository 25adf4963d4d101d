"""The wheel carries what the code reads at run time."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

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
    assert "redrive/py.typed" in packed, "without it type checkers ignore the annotations of an installed package"


def names_in(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as file:
        return file.namelist()


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        *(path.relative_to(REPOSITORY).as_posix() for path in sorted(REPOSITORY.glob("examples/*/README.md"))),
    ],
)
def test_a_page_that_uses_redrive_installs_it_from_the_clone_that_it_is_read_in(page: str) -> None:
    """The package is on no registry yet, so its name alone installs nothing, or something else."""
    lines = re.findall(r"^pip install ([^#\n]+)", (REPOSITORY / page).read_text("utf-8"), re.MULTILINE)
    words = [word for line in lines for word in shlex.split(line)]
    assert [word for word in words if word.startswith("redrive")] == []
    paths = [(REPOSITORY / page).parent / word.partition("[")[0] for word in words if word.startswith(".")]
    assert [path.resolve() for path in paths] == [REPOSITORY]
