"""The tutorial, taken step by step by a reader with a terminal: real files, real processes, real PostgreSQL.

With `--full` also on a bare machine: the wheel is built, installed into a new environment, and brings its own server.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from redrive.operate.cli.main import cli
from tests.docs.desk import Desk
from tests.docs.pages import DOCS, ROOT, Step, fits, steps
from tests.support.scratch import scratch
from tests.support.waiting import wait_until

TUTORIAL = DOCS / "tutorial" / "first-message.md"
EXAMPLE = ROOT / "examples" / "shop"
DEADLINE_SECONDS = 30.0
# The relay makes the whole schema before it starts. One that ends is noticed at once; one that lives is waited for.
SHOWN_SECONDS_MAX = 240.0
# Commands that only look may be repeated until they show what the page shows: a reader takes longer than a machine.
LOOKS = (
    *("cat ", "python ask.py", "redrive status", "redrive dead list", "redrive held list", "redrive keys list"),
    "redrive messages list",
)
OF_THE_SHELL = frozenset(">|$")


class Reader:
    """Somebody with two terminals in one directory."""

    def __init__(self, place: Path, dsn: str) -> None:
        self._place = place
        self._environment = {**os.environ, "REDRIVE_DSN": dsn, "PATH": f"{_commands(place)}:{os.environ['PATH']}"}
        self._running: list[subprocess.Popen[str]] = []
        self._last = ""
        self._said = ""

    def take(self, step: Step) -> None:
        if step.kind == "python":
            (self._place / step.words).write_text(step.text, encoding="utf-8")
        elif step.kind == "do":
            assert (step.text.strip(), self.stop()) == ("stop", [0])
        elif step.kind == "output":
            self._compare(step)
        elif step.words == "background":
            self._running.append(self._start(step.text))
            self._last = "cat relay.log"  # the other terminal
        else:
            for line in step.text.strip().splitlines():
                self._type(line, step)

    def stop(self) -> list[int]:
        """Ctrl-C in the other terminal; how it ended."""
        running, self._running = self._running, []
        for process in running:
            process.send_signal(signal.SIGINT)
        return [process.wait(DEADLINE_SECONDS) for process in running]

    def kill(self) -> None:
        for process in self._running:
            if process.poll() is None:
                process.kill()
                process.wait()

    @property
    def _beside(self) -> dict[str, str]:
        """What is set in the other terminal."""
        return self._environment

    def _start(self, line: str) -> subprocess.Popen[str]:
        with (self._place / "relay.log").open("w") as log:
            return subprocess.Popen(
                f"exec {line}", shell=True, cwd=self._place, env=self._beside, stdout=log, stderr=log, text=True
            )

    def _type(self, line: str, step: Step) -> None:
        self._last = line
        is_plain = line.startswith("redrive ") and not OF_THE_SHELL & set(line)
        ended, self._said = self._redrive(line) if is_plain else self._shell(line)
        looks_early = line.startswith("cat ") and ended == 1  # the file is not there yet
        assert looks_early or ended == step.exit_code, f"{step.place}: {line!r} ended so: {self._said}"

    def _shell(self, line: str) -> tuple[int, str]:
        done = subprocess.run(
            line, shell=True, cwd=self._place, env=self._environment, capture_output=True, text=True, timeout=60
        )
        return done.returncode, done.stdout + done.stderr

    def _redrive(self, line: str) -> tuple[int, str]:
        """In this process, to spare the start of another; that `python -m redrive` starts is seen by the relay."""
        words = shlex.split(line)[1:]
        done = CliRunner().invoke(cli, words, env={"REDRIVE_DSN": self._environment["REDRIVE_DSN"]})
        return done.exit_code, done.stdout + done.stderr

    def _compare(self, step: Step) -> None:
        if fits(step.text, self._said):
            return
        assert self._last.startswith(LOOKS), self._unlike(step)
        try:
            wait_until(lambda: self._looks_right(step), seconds=SHOWN_SECONDS_MAX, what=f"what {step.place} shows")
        except AssertionError:
            raise AssertionError(self._unlike(step)) from None

    def _looks_right(self, step: Step) -> bool:
        ended = [process.args for process in self._running if process.poll() is not None]
        assert not ended, f"{ended} ended before it had shown this"
        self._type(self._last, step)
        return fits(step.text, self._said)

    def _unlike(self, step: Step) -> str:
        log = (self._place / "relay.log").read_text(encoding="utf-8")[-3000:]
        return f"{step.place}: the page shows\n{step.text}\nand it printed\n{self._said}\nThe relay said\n{log}"


class NewUser(Reader):
    """Somebody with a clone, Python, and nothing else."""

    def __init__(self, home: Path) -> None:
        self._clone = home / "clone"
        _copy_clone(self._clone)
        self._python = home / "python"
        self._python.mkdir()
        (self._python / "python3").symlink_to(sys.executable)
        self._place = self._clone / "my-shop"
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("REDRIVE_")}
        self._environment |= {
            "PATH": f"{self._clone}/.venv/bin:{self._python}:{os.environ['PATH']}",
            "REDRIVE_DATA_DIR": str(home / "data"),
        }
        self._environment.pop("PYTHONPATH", None)
        self._running, self._last, self._said = [], "", ""

    def take(self, step: Step) -> None:
        if step.words == "install":
            done = subprocess.run(
                ["bash", "-ec", step.text], cwd=self._clone, env=self._environment, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stdout + done.stderr
        elif "export REDRIVE_DSN" in step.text:
            self._environment["REDRIVE_DSN"] = self._its_dsn()
        else:
            super().take(step)

    @property
    def _beside(self) -> dict[str, str]:
        """The DSN was exported in the first terminal only."""
        return {name: value for name, value in self._environment.items() if name != "REDRIVE_DSN"}

    def _its_dsn(self) -> str:
        found = re.search(r"Its DSN: (\S+)", (self._place / "relay.log").read_text(encoding="utf-8"))
        assert found is not None
        return found.group(1)

    def _redrive(self, line: str) -> tuple[int, str]:
        return self._shell(line)


def _copy_clone(clone: Path) -> None:
    shutil.copytree(ROOT / "src", clone / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "LICENSE", "README.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, clone / name)


def _commands(place: Path) -> Path:
    """`redrive` and `python` as the reader has them after the installation."""
    commands = place / ".commands"
    commands.mkdir()
    for name, words in {"redrive": "-m redrive", "python": ""}.items():
        (commands / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n', encoding="utf-8")
        (commands / name).chmod(0o755)
    return commands


@pytest.fixture
def reader(tmp_path: Path, empty_database: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    reader = Reader(tmp_path, empty_database)
    yield reader
    reader.kill()


@pytest.mark.req("G-01", "G-02")
@pytest.mark.req("G-11")
@pytest.mark.req("G-27")
@pytest.mark.timeout(600)
def test_the_tutorial_can_be_followed_to_its_end(reader: Reader) -> None:
    for step in steps(TUTORIAL):
        if step.is_run and step.words != "install":
            reader.take(step)
    assert reader.stop() == [0]


@pytest.mark.full
@pytest.mark.own_server
@pytest.mark.timeout(600)  # of which the first message takes less than five minutes, also on a busy machine
@pytest.mark.skipif(importlib.util.find_spec("ensurepip") is None, reason="this Python comes without venv")
def test_a_new_user_has_a_message_delivered_in_five_minutes_by_the_text_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    began = time.monotonic()
    passed: dict[str, float] = {}
    with scratch("redrive-new-user-") as home:
        user = NewUser(home)
        try:
            for step in steps(TUTORIAL):
                user.take(step)
                passed |= {"delivered": time.monotonic() - began} if "anna@example.org Welcome!" in step.text else {}
                passed |= {"installed": time.monotonic() - began} if step.words == "install" else {}
            assert user.stop() == [0]
        finally:
            user.kill()
    with capsys.disabled():
        print(f"\nThe tutorial took {time.monotonic() - began:.0f} s;", {k: f"{v:.0f} s" for k, v in passed.items()})


def test_what_the_tutorial_leaves_to_the_reader_is_counted() -> None:
    assert sum(not step.is_run or step.words == "install" for step in steps(TUTORIAL)) == 2


def test_the_example_is_the_tutorials() -> None:
    shown: Mapping[str, str] = {step.words: step.text for step in steps(TUTORIAL) if step.kind == "python"}
    assert shown == {path.name: path.read_text(encoding="utf-8") for path in sorted(EXAMPLE.glob("*.py"))}


@pytest.mark.req("G-01")
def test_the_readme_runs_as_it_stands(desk: Desk) -> None:
    (shop,) = [step for step in steps(ROOT / "README.md") if step.kind == "python"]
    desk.run(shop)
    desk.conn.execute("CREATE TABLE users (email text PRIMARY KEY)")
    desk.names["sign_up"](desk.conn, "anna@example.org")
    desk.deliver()
    assert Path("sent.txt").read_text(encoding="utf-8").startswith("anna@example.org ")
