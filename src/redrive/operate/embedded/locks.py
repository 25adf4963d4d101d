"""Locks of a data directory. They are the kernel's, so a killed process releases them.

`.lock` is exclusive while a server is started or stopped. `.users` is shared by all users of the server.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from redrive.operate.embedded.errors import AlreadyRunning

LOCK_SECONDS_MAX = 120.0  # another process's initdb, start or stop
POLL_SECONDS = 0.02


def beside(place: Path, suffix: str) -> Path:
    return place.with_name(place.name + suffix)


@contextlib.contextmanager
def alone(place: Path) -> Iterator[None]:
    path = beside(place, ".lock")
    with open_private(path, "a+") as file:
        if not wait(lambda: try_lock(file, fcntl.LOCK_EX), seconds=LOCK_SECONDS_MAX):
            file.seek(0)
            raise AlreadyRunning(
                f"Process {file.read().strip() or '?'} has held {path} for {LOCK_SECONDS_MAX:.0f} s.",
                next="wait for it or end it, then try again",
            )
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def open_private(path: Path, mode: str) -> IO[Any]:
    return open(path, mode, opener=lambda name, flags: os.open(name, flags, 0o600))


def join_users(place: Path) -> IO[str]:
    file = open_private(beside(place, ".users"), "a+")
    fcntl.flock(file, fcntl.LOCK_SH)
    return file


def is_last(users: IO[str]) -> bool:
    return try_lock(users, fcntl.LOCK_EX)


def try_lock(file: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait(condition: Callable[[], bool], *, seconds: float) -> bool:
    """For a condition of another process, which cannot call us; False when the time is up."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True
