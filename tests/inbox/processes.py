"""`redrive worker` and `redrive relay` as processes of their own, with an app that a test has written."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.waiting import wait_until

SECONDS = 120.0  # for anything that a process is waited for; a loaded machine takes half a minute to start one


class Running:
    """A process that runs. url: where it serves metrics and health."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process, self._log = process, log

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")

    @property
    def url(self) -> str:
        def found() -> re.Match[str] | None:
            assert self._process.poll() is None, self.log
            return re.search(r"metrics and health on (http://[\d.:]+)", self.log)

        wait_until(lambda: found() is not None, seconds=SECONDS, what="the address of its metrics")
        match = found()
        assert match is not None
        return match[1]

    def stop(self) -> int:
        """Gracefully; the exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(SECONDS)


@contextmanager
def running(directory: Path, database: str, *words: str, **environment: str) -> Iterator[Running]:
    """words: the command. Its app is in a module of the directory; killed at the end where it still runs."""
    log = directory / f"{words[0]}.log"
    values: Mapping[str, str] = {
        **os.environ,
        **environment,
        "PYTHONPATH": str(directory),
        "REDRIVE_DSN": database,
        "REDRIVE_HEARTBEAT_SECONDS": "0.2",
    }
    with log.open("wb") as file:
        process = subprocess.Popen([sys.executable, "-m", "redrive", *words], env=values, stderr=file)
    try:
        yield Running(process, log)
    finally:
        process.kill()
        process.wait(SECONDS)
