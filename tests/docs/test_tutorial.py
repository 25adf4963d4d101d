"""The tutorial, taken step by step by a reader with a terminal: real files, real processes, real PostgreSQL."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from redrive.operate.cli.main import cli
from tests.docs.desk import Desk
from tests.docs.pages import DOCS, ROOT, Step, fits, steps
from tests.support.waiting import wait_until

TUTORIAL = DOCS / "tutorial" / "first-message.md"
EXAMPLE = ROOT / "examples" / "shop"
DEADLINE_SECONDS = 30.0
# Commands that only look may be repeated until they show what the page shows: a reader takes longer than a machine.
LOOKS = ("cat ", "redrive status", "redrive dead list", "redrive messages list")


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
        for process in self._running:
            process.send_signal(signal.SIGINT)
        return [process.wait(DEADLINE_SECONDS) for process in self._running]

    def kill(self) -> None:
        for process in self._running:
            if process.poll() is None:
                process.kill()
                process.wait()

    def _start(self, line: str) -> subprocess.Popen[str]:
        with (self._place / "relay.log").open("w") as log:
            return subprocess.Popen(
                f"exec {line}", shell=True, cwd=self._place, env=self._environment, stdout=log, stderr=log, text=True
            )

    def _type(self, line: str, step: Step) -> None:
        self._last = line
        ended, self._said = self._redrive(line) if line.startswith("redrive ") else self._shell(line)
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
            wait_until(lambda: self._looks_right(step), seconds=DEADLINE_SECONDS, what=f"what {step.place} shows")
        except AssertionError:
            raise AssertionError(self._unlike(step)) from None

    def _looks_right(self, step: Step) -> bool:
        self._type(self._last, step)
        return fits(step.text, self._said)

    def _unlike(self, step: Step) -> str:
        log = (self._place / "relay.log").read_text(encoding="utf-8")[-3000:]
        return f"{step.place}: the page shows\n{step.text}\nand it printed\n{self._said}\nThe relay said\n{log}"


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
def test_the_tutorial_can_be_followed_to_its_end(reader: Reader) -> None:
    for step in steps(TUTORIAL):
        if step.is_run:
            reader.take(step)
    assert reader.stop() == [0]


def test_what_the_tutorial_leaves_to_the_reader_is_counted() -> None:
    assert sum(not step.is_run for step in steps(TUTORIAL)) == 2


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
