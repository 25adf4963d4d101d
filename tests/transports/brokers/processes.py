"""A broker as a process on a free port of loopback, its data in a directory of its own, ended by its pid."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.waiting import wait_until

START_SECONDS = 60.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


class Process:
    """A program that listens on a port, and can be started again after it was stopped."""

    def __init__(self, command: Sequence[str], *, port: int, log: Path, env: Mapping[str, str] | None = None) -> None:
        self._command, self._log, self._env = list(command), log, env
        self.port = port
        self._running: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._running = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **(self._env or {})},
                start_new_session=True,
            )
        wait_until(self._is_ready, seconds=START_SECONDS, what=f"{self._command[0]} on port {self.port}")

    def stop(self, number: int = signal.SIGTERM) -> None:
        """By its pid: a broker that starts programs of its own is the leader of their session."""
        running, self._running = self._running, None
        if running is None:
            return
        if number == signal.SIGKILL:
            os.killpg(running.pid, number)
        else:
            running.send_signal(number)
        running.wait(START_SECONDS)

    def _is_ready(self) -> bool:
        assert self._running is not None
        if self._running.poll() is not None:
            raise AssertionError(f"{self._command[0]} ended: {self._log.read_text('utf-8', 'replace')[-2000:]}")
        return answers(self.port)
