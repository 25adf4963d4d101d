"""A failed test is looked at again, alone: what fails once by chance is named, what fails again has failed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bootstrap import check

# Fails as often as the file beside it says.
TEST = """
from pathlib import Path

left = Path(__file__).with_suffix(".left")

def test_it():
    failures = int(left.read_text())
    left.write_text(str(failures - 1))
    assert failures <= 0
"""


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A suite of its own, of which the last run is on record."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(check, "LAST_FAILED", tmp_path / "lastfailed")
    return tmp_path


def failed(suite: Path, name: str, *, failures: int) -> str:
    """A test that has failed in the last run and will that many times more."""
    path = suite / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(TEST)
    path.with_suffix(".left").write_text(str(failures))
    known = json.loads(check.LAST_FAILED.read_text()) if check.LAST_FAILED.exists() else {}
    check.LAST_FAILED.write_text(json.dumps({**known, f"{name}::test_it": True}))
    return f"{name}::test_it"


def look() -> list[str]:
    return check.second_look(dict(os.environ), [])


def times_run(suite: Path, name: str) -> int:
    return -int((suite / name).with_suffix(".left").read_text())


def test_what_then_passes_three_times_is_unstable(suite: Path) -> None:
    name = failed(suite, "tests/crash/test_a.py", failures=0)
    assert look() == [name]
    assert times_run(suite, "tests/crash/test_a.py") == 3


def test_what_fails_again_has_failed(suite: Path) -> None:
    failed(suite, "tests/crash/test_a.py", failures=1)
    assert look() == []


def test_what_a_seed_or_an_order_of_steps_decides_gets_no_second_look(suite: Path) -> None:
    failed(suite, "tests/interleavings/test_a.py", failures=0)
    assert look() == []
    assert times_run(suite, "tests/interleavings/test_a.py") == 0


def test_three_failures_are_no_chance(suite: Path) -> None:
    for letter in "abc":
        failed(suite, f"tests/crash/test_{letter}.py", failures=0)
    assert look() == []
    assert times_run(suite, "tests/crash/test_a.py") == 0


def test_a_worker_that_crashed_is_no_chance(suite: Path) -> None:
    """The tests that it had before it were not run."""
    (suite / "test_crash.py").write_text(
        "import os\n\ndef test_it():\n    os._exit(1)\n\ndef test_other():\n    pass\n"
    )
    results = suite / "results.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-n", "1", "--max-worker-restart=0", f"--junitxml={results}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert check.has_crashed(results), done.stdout
    assert check.has_crashed(suite / "missing.xml")
    command[3:6] = ["-q", "-n", "0"]
    (suite / "test_crash.py").write_text("def test_it():\n    assert False\n")
    assert subprocess.run(command, capture_output=True, check=False).returncode == check.TESTS_FAILED
    assert not check.has_crashed(results)
