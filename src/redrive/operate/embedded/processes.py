"""Server processes: whether one lives, whether it is the one of a directory, how it ends.

A pid alone is not trusted: after a crash it may be another process. A server works in its own directory.
"""

import contextlib
import os
import signal
import socket
import subprocess
from pathlib import Path

from redrive.operate.embedded.errors import AlreadyRunning
from redrive.operate.embedded.locks import wait

FAST_STOP_SECONDS_MAX = 30.0
IMMEDIATE_STOP_SECONDS_MAX = 10.0

# The servers that this process started: it is their parent and must take their exit status, or a killed
# server would stay a zombie whose pid looks alive to the next one.
_children: dict[int, subprocess.Popen[bytes]] = {}


def remember(child: subprocess.Popen[bytes]) -> int:
    """As a child of this process; its pid."""
    _children[child.pid] = child
    return child.pid


def is_server_of(pid: int, place: Path) -> bool:
    if not is_alive(pid):
        return False
    try:
        return Path(f"/proc/{pid}/cwd").resolve(strict=True).samefile(place)
    except PermissionError:
        # Another user's process in our directory: not a server that we could have started.
        return os.geteuid() == 0
    except OSError:
        return not Path("/proc/self").exists()  # no /proc to look at: believe the file


def is_alive(pid: int) -> bool:
    """A process that has ended and waits for its parent is not."""
    child = _children.get(pid)
    if child is not None and child.poll() is not None:
        del _children[pid]
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] not in {"Z", "X"}
    return True


def stop(pid: int, place: Path) -> None:
    """Fast shutdown, then immediate, then by force."""
    if not (pid in _children or is_server_of(pid, place)):
        return
    steps = (
        (signal.SIGINT, FAST_STOP_SECONDS_MAX),
        (signal.SIGQUIT, IMMEDIATE_STOP_SECONDS_MAX),
        (signal.SIGKILL, IMMEDIATE_STOP_SECONDS_MAX),
    )
    for kind, seconds in steps:
        if not is_alive(pid):
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, kind)
        if wait(lambda: not is_alive(pid), seconds=seconds):
            return
    raise AlreadyRunning(
        f"The server of {place}, pid {pid}, did not end even by force.", next=f"see what holds it (ps -p {pid})"
    )


def free_port() -> int:
    """Of 127.0.0.1; another process may take it first."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.bind(("127.0.0.1", 0))
        found: int = sock.getsockname()[1]
        return found


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
