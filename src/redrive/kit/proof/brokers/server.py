"""A broker as a process on a free port of loopback, its data in a directory of its own, ended by its pid."""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from redrive.operate.embedded.processes import answers

T = TypeVar("T")
START_SECONDS = 60.0
LOOK_SECONDS = 0.02


class ServerProcess:
    """A program that listens on a port, and can be started again after it was stopped."""

    survives = True

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
        deadline = time.monotonic() + START_SECONDS
        while not self._is_ready():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self._command[0]} does not answer on port {self.port}: {self._last_words()}")
            time.sleep(LOOK_SECONDS)

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

    def rewrite(self, said: bytes, _port: int) -> bytes:
        return said

    def _is_ready(self) -> bool:
        assert self._running is not None
        if self._running.poll() is not None:
            raise RuntimeError(f"{self._command[0]} ended: {self._last_words()}")
        return answers(self.port)

    def _last_words(self) -> str:
        return self._log.read_text("utf-8", "replace")[-2000:]


def in_thread(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine in an event loop of its own, from a caller that may be in one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(work())).result()
