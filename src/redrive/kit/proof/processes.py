"""The processes of a proof, each in a session of its own, so that `end` ends a killed relay's child too."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

END_SECONDS = 10.0
PATIENCE_MAX = 4.0


def patience() -> float:
    """How many times longer a proof waits before it calls something stuck, by the load of the machine."""
    return min(PATIENCE_MAX, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))


class Ended(Exception):
    """The proof was ended during a wait, or before a start."""


class Stuck(Exception):
    """Nothing has moved for too long."""


def wait_while_it_moves(
    what: str,
    is_done: Callable[[], bool],
    moves: Callable[[], Any],
    *,
    ended: threading.Event,
    seconds: float,
    every_seconds: float,
) -> None:
    """moves: differs as long as anything goes on. seconds: so long nothing may have moved; longer on a busy machine."""
    moved, seen = time.monotonic(), moves()
    while not is_done():
        now, found = time.monotonic(), moves()
        if found != seen:
            moved, seen = now, found
        if now > moved + seconds * patience():
            raise Stuck(f"{what}: nothing has moved for {now - moved:.0f} s.")
        if ended.wait(every_seconds):
            raise Ended


class Process:
    """A Python module; its settings go to standard input, its output to a file beside which it runs. It takes no
    `REDRIVE_*` of ours but those in `environment`: the settings of a user are not those of a proof."""

    def __init__(
        self, name: str, module: str, *arguments: str, settings: object, environment: Mapping[str, str], said: Path
    ) -> None:
        self.name = name
        self.said = said
        with said.open("ab") as file:
            self._child = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=file,
                env={**_surroundings(), **environment},
                cwd=said.parent,
                start_new_session=True,
            )
        assert self._child.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._child.stdin.write(json.dumps(settings).encode())
            self._child.stdin.close()

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def code(self) -> int | None:
        """None while it runs."""
        return self._child.poll()

    @property
    def ending(self) -> str:
        """How it ended, for a sentence: its code and the last line that it printed."""
        said = self.said.read_text("utf-8", "replace").strip().splitlines()
        return f"ended with {self.code}: {said[-1] if said else 'no word'}"

    @property
    def frozen(self) -> bool:
        return state_of(self.pid) == "T"

    def signal(self, number: signal.Signals) -> None:
        """To this process alone, not to its children."""
        if self.code is None:
            os.kill(self.pid, number)

    def wait(self, seconds: float) -> int:
        return self._child.wait(seconds)

    def end(self) -> None:
        """With whatever it has started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._child.wait(END_SECONDS)


class Processes:
    def __init__(self, place: Path, environment: Mapping[str, str]) -> None:
        self._place = place
        self._environment = environment
        self._started: list[Process] = []
        self._count = 0
        self._ended = False

    def start(
        self,
        name: str,
        module: str,
        *arguments: str,
        settings: object = None,
        environment: Mapping[str, str] | None = None,
    ) -> Process:
        if self._ended:
            raise Ended
        self._count += 1
        said = self._place / f"{self._count:04}-{name}.out"
        process = Process(
            name,
            module,
            *arguments,
            settings=settings,
            environment={**self._environment, **(environment or {})},
            said=said,
        )
        self._started.append(process)
        return process

    def said(self) -> Sequence[Path]:
        """Output files that are not empty: normally none."""
        return [process.said for process in self._started if process.said.stat().st_size]

    def end(self) -> None:
        """None is started any more."""
        self._ended = True
        for process in self._started:
            process.end()


def _surroundings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("REDRIVE_")}


def state_of(pid: int) -> str:
    """The letter of /proc/pid/stat (R, S, T, Z …); empty when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return ""
