"""A run by fork is one as from the command line: with the files of its own directory, and ended when its time is up."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mutants.fork_server import ForkServer

ARGUMENTS = ["-q", "-p", "no:cacheprovider", "-c", "pytest.ini"]


@pytest.fixture(scope="module")
def forks() -> Iterator[ForkServer]:
    with ForkServer() as started:
        yield started


def directory(place: Path, test: str) -> Path:
    """A tree with a `redrive` of its own, and one test."""
    (place / "src/redrive").mkdir(parents=True)
    (place / "src/redrive/__init__.py").write_text(f"PLACE = {str(place)!r}\n")
    (place / "pytest.ini").write_text("[pytest]\npythonpath = src\n")
    (place / "test_it.py").write_text(f"import os, signal, redrive\n\ndef test_it():\n    {test}\n")
    return place


@pytest.mark.parametrize("test", ["assert redrive.PLACE == os.environ['WANTED'] == os.getcwd()", "assert not redrive"])
def test_each_run_imports_the_package_of_its_own_directory(forks: ForkServer, tmp_path: Path, test: str) -> None:
    for name in ("one", "other"):
        place = directory(tmp_path / name, test)
        done = forks.pytest(place, ARGUMENTS, {"WANTED": str(place)}, seconds=100)
        assert done.returncode == int("not" in test), done.stdout
        assert ("1 passed" in done.stdout) == (done.returncode == 0)


def test_a_run_that_does_not_end_is_killed_and_the_next_one_runs(forks: ForkServer, tmp_path: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        forks.pytest(directory(tmp_path / "endless", "signal.pause()"), ARGUMENTS, {}, seconds=1)
    done = forks.pytest(directory(tmp_path / "next", "assert redrive"), ARGUMENTS, {}, seconds=100)
    assert done.returncode == 0, done.stdout
