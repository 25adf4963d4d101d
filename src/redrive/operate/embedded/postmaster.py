"""The PostgreSQL server of a data directory: whether it runs, whether it is ready.

Neither `postmaster.pid` nor the process table is trusted alone: a crash leaves the file behind and the pid may be
another process by now.
"""

from dataclasses import dataclass
from pathlib import Path

from redrive.operate.embedded.data import has_data
from redrive.operate.embedded.errors import AlreadyRunning
from redrive.operate.embedded.identity import Identity
from redrive.operate.embedded.locks import beside, open_private
from redrive.operate.embedded.processes import is_server_of, remember


@dataclass(frozen=True, slots=True)
class Postmaster:
    pid: int
    port: int
    socket_dir: Path
    listens: bool  # on TCP, at 127.0.0.1


def running_on(place: Path) -> Postmaster | None:
    """A file that a dead one left is taken away."""
    if not has_data(place):
        return None
    # A server that was just started or killed may have written half of the file, or none.
    found = _read_postmaster(place)
    if found is None:
        return None
    if is_server_of(found.pid, place):
        return found
    # Its pid may be another process by now, which PostgreSQL would take for a live server.
    (place / "postmaster.pid").unlink(missing_ok=True)
    return None


def _read_postmaster(place: Path) -> Postmaster | None:
    try:
        lines = _lines(place)
        return Postmaster(
            pid=abs(int(lines[0])),
            port=int(lines[3]),
            socket_dir=Path(lines[4]) if lines[4] else place,
            listens=bool(lines[5]),
        )
    except FileNotFoundError:
        return None
    except (IndexError, ValueError):
        return _half_written(place)


def _lines(place: Path) -> list[str]:
    return (place / "postmaster.pid").read_text("utf-8").splitlines()


def _half_written(place: Path) -> Postmaster | None:
    """Only the pid is there: the server died while starting, or starts at this moment."""
    lines = _lines(place)
    pid = abs(int(lines[0])) if lines and lines[0].strip().lstrip("-").isdigit() else 0
    if pid and is_server_of(pid, place):
        raise AlreadyRunning(
            f"A server of {place} is starting as pid {pid}, and was not started by Redrive.",
            next="wait until it is up, or end it, then try again",
        )
    (place / "postmaster.pid").unlink(missing_ok=True)
    return None


def is_ready(place: Path, pid: int) -> bool:
    try:
        lines = _lines(place)
    except FileNotFoundError:
        return False
    return len(lines) > 7 and lines[0] == str(pid) and lines[7].strip() == "ready"


def spawn(place: Path, command: list[str], identity: Identity) -> int:
    with open_private(beside(place, ".log"), "ab") as log:
        child = identity.spawn(command, log=log)
    return remember(child)
