"""How `./test` runs its parts: what runs beside the tests is judged, shown and never left behind."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from bootstrap import check

# Opens the pipe when it runs, and says when it is asked to end.
WAITS = """
import pathlib, signal, sys

def end(*_):
    pathlib.Path(sys.argv[1]).write_text("ended")
    sys.exit(1)

signal.signal(signal.SIGTERM, end)
open(sys.argv[2], "w").close()
signal.pause()
"""


def program(text: str, *arguments: object) -> list[str]:
    return [sys.executable, "-c", text, *map(str, arguments)]


def test_what_ran_beside_is_shown_and_passes(capsys: pytest.CaptureFixture[str]) -> None:
    with check.beside(program("print('0 violations')")) as end:
        assert capsys.readouterr().out == ""
        step = end()
    assert step.ok
    assert capsys.readouterr().out.strip() == "0 violations"


def test_what_fails_beside_fails_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    with check.beside(program("import sys; print('a violation', file=sys.stderr); sys.exit(3)")) as end:
        step = end()
    assert (step.ok, step.note) == (False, "exit code 3")
    assert "a violation" in capsys.readouterr().out


def test_what_still_runs_when_the_tests_are_broken_off_is_ended(tmp_path: Path) -> None:
    said, pipe = tmp_path / "said", tmp_path / "pipe"
    os.mkfifo(pipe)

    def broken_off() -> None:
        with check.beside(program(WAITS, said, pipe)):
            pipe.read_text()  # returns when it runs
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken_off()
    assert said.read_text() == "ended"


def test_processes_of_the_tests_may_keep_what_they_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some images forbid it, and then each process of a run compiles the whole product."""
    seen: list[str | None] = []
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.chdir(check.ROOT)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(check, "run_tests", lambda *_: seen.append(os.environ.get("PYTHONDONTWRITEBYTECODE")))
    assert check.main(["--quick"]) == 0
    assert seen == [None]
