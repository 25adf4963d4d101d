"""Runs pytest in processes that need not start from nothing: by fork, from one that has imported the libraries.

Half of what a planted bug costs is the start of Python, pytest and the libraries, the same each time. Of `redrive`, of
the tests and of pytest's plugins the server imports nothing: a fork finds those of its own directory, the mutated ones,
as `python -m pytest` there would. It takes orders as JSON lines; run as a script by `ForkServer`.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Self

# What most tests import, and nothing that starts a thread.
LIBRARIES = (
    *("aiohttp", "asyncio", "click", "execnet", "hypothesis.strategies", "psycopg.rows", "psycopg.types.json"),
    *("pydantic_settings", "rich.console", "rich.table", "structlog", "unittest.mock", "zoneinfo"),
)
OURS = frozenset({"redrive", "tests", "tools"})


class ForkServer:
    """One at a time. A run that does not end in time is killed with all that it started."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # so that `select` sees each line
            env={name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHONPATH"))},
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def pytest(
        self, place: Path, arguments: Sequence[str], variables: Mapping[str, str], *, seconds: float
    ) -> subprocess.CompletedProcess[str]:
        """As `python -m pytest` in this directory, with these variables besides the server's own."""
        said = place / "pytest.out"
        command = ["--disable-plugin-autoload", *arguments]
        pid = self._ask(place=str(place), arguments=command, variables=dict(variables), said=str(said))
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], seconds)[0]:
            os.killpg(pid, signal.SIGKILL)
            self._answer()
            raise subprocess.TimeoutExpired(command, seconds, said.read_text())
        return subprocess.CompletedProcess(command, self._answer(), said.read_text(), "")

    def _ask(self, **order: Any) -> int:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        return self._answer()

    def _answer(self) -> int:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"The process that starts pytest has ended with {self._process.wait()}.")
        return int(line)


def serve() -> None:
    """Until standard input ends: for each order the id of its process, and its exit code."""
    _import_libraries()
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _run(**order)
        with contextlib.suppress(PermissionError):  # it has done so itself
            os.setpgid(pid, pid)
        print(pid, flush=True)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # which leaves the group its id
        os.killpg(pid, signal.SIGKILL)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def _import_libraries() -> None:
    import pytest

    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main(["--version", "--disable-plugin-autoload", "-c", os.devnull])  # imports what pytest is made of
    for name in LIBRARIES:
        importlib.import_module(name)
    mutated = sorted(name for name in sys.modules if name.partition(".")[0] in OURS)
    if mutated:
        raise RuntimeError(f"The libraries import what a mutant may change: {', '.join(mutated)}.")


def _run(place: str, arguments: Sequence[str], variables: Mapping[str, str], said: str) -> NoReturn:
    code = 1
    try:
        os.setpgid(0, 0)
        nothing, output = os.open(os.devnull, os.O_RDONLY), os.open(said, os.O_WRONLY | os.O_CREAT, 0o600)
        for number, opened in enumerate((nothing, output, output)):
            os.dup2(opened, number)
        os.chdir(place)
        os.environ.update(variables)
        sys.dont_write_bytecode = True
        sys.path[0], sys.argv[1:] = place, arguments
        import pytest

        code = int(pytest.main([*arguments]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()
