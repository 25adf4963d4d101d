"""The public names as a type checker sees them: right uses are accepted, wrong ones rejected with the expected code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MISUSES_MIN = 30


def mypy(*paths: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    """With the project's own settings: strict, unneeded ignores reported."""
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(cache)]
    return subprocess.run([*command, *map(str, paths)], cwd=ROOT, capture_output=True, text=True)


@pytest.mark.req("G-19")
def test_right_uses_are_accepted_and_every_misuse_is_rejected_with_its_code(tmp_path: Path) -> None:
    """Each misuse carries the code it must be rejected with; taken away, exactly these errors appear."""
    misuse = (HERE / "misuse.py").read_text()
    expected = dict(re.findall(r"^(.*?)  # type: ignore\[([a-z-]+)\]", misuse, re.MULTILINE))
    assert len(expected) >= MISUSES_MIN
    bare = tmp_path / "bare.py"
    bare.write_text(re.sub(r"  # type: ignore\[[a-z-]+\]", "", misuse))
    ran = mypy(HERE / "public_api.py", bare, cache=ROOT / ".mypy_cache")
    lines = bare.read_text().splitlines()
    found = re.findall(r"^(.+?):(\d+): error: .*\[([a-z-]+)\]$", ran.stdout, re.MULTILINE)
    assert {Path(path).name for path, _, _ in found} == {"bare.py"}, ran.stdout + ran.stderr
    rejected = {lines[int(number) - 1].split("  # noqa")[0]: code for _, number, code in found}
    assert rejected == expected
