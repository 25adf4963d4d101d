"""`redrive demo` as a process: what it prints for a second terminal works there as it is printed."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from redrive.operate.cli import local_server
from tests.support.waiting import wait_until

# As an installed package has it: an executable whose first line names its interpreter.
PROGRAM = """#!{python}
import sys
sys.path[:0] = {path!r}
from redrive.operate.cli.main import main
sys.exit(main())
"""


@contextmanager
def demo(place: Path, *command: str) -> Iterator[Path]:
    """Its log, while it runs."""
    log = place / "log"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "80"}
    with (
        log.open("w") as file,
        subprocess.Popen(command, cwd=place, env=environment, stdout=file, stderr=file) as process,
    ):
        try:
            yield log
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=30) == 0, log.read_text()
        finally:
            if process.poll() is None:
                process.kill()


@pytest.mark.parametrize("started", ["as a program", "as a module"])
def test_the_command_for_a_second_terminal_works_as_it_is_printed(database: str, tmp_path: Path, started: str) -> None:
    program = tmp_path / "a place with spaces" / "redrive"
    program.parent.mkdir()
    program.write_text(PROGRAM.format(python=sys.executable, path=sys.path))
    program.chmod(0o755)
    command = [str(program)] if started == "as a program" else [sys.executable, "-m", "redrive"]
    with demo(tmp_path, *command, "demo", "--dsn", database, "--home", str(tmp_path / "home")) as log:
        wait_until(lambda: "dead list" in log.read_text(), seconds=60, what="the command")
        (line,) = [line for line in log.read_text().splitlines() if "dead list" in line]
        terminal = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
        if started == "as a module":
            terminal["PYTHONPATH"] = os.pathsep.join(sys.path)  # where it is installed it needs none
        done = subprocess.run(["/bin/sh", "-c", line], cwd="/", env=terminal, capture_output=True, text=True)
        assert done.returncode == 0, line + done.stderr
        assert shlex.split(line)[-4:] == ["dead", "list", "--dsn", database]


def test_each_clone_has_a_demo_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    here = local_server.demo_home()
    assert local_server.demo_home() == here
    monkeypatch.setattr(local_server, "__file__", "/another/clone/src/redrive/operate/cli/local_server.py")
    assert local_server.demo_home().parent == here.parent
    assert local_server.demo_home() != here
