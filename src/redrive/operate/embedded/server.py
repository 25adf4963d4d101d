"""Starts a server on a data directory, or joins the one that runs there. It outlives a killed caller.

Every setting is on the command line, so that `postmaster.opts` shows what is in force.
"""

import contextlib
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO
from urllib.parse import quote

from redrive.operate.embedded import data, postmaster, processes
from redrive.operate.embedded.data import SUPERUSER, log_tail
from redrive.operate.embedded.errors import AlreadyRunning, EmbeddedError, PortTaken, StartFailed
from redrive.operate.embedded.identity import Identity, usable
from redrive.operate.embedded.locks import alone, beside, join_users, wait
from redrive.operate.embedded.postmaster import Postmaster, is_ready
from redrive.operate.embedded.processes import free_port, is_alive
from redrive.operate.embedded.shared_server import SharedServer

SOCKET_PORT = 5432  # only names the socket file; the directory is the data directory's own
START_SECONDS_MAX = 60.0  # crash recovery included
FREE_PORT_TRIES = 5

SETTINGS: Mapping[str, str] = {
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "128MB",
    "max_connections": "200",
    "autovacuum": "on",
    "autovacuum_naptime": "1s",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] %q%u@%d ",
    "password_encryption": "scram-sha-256",
}


@dataclass
class Server(SharedServer):
    """As one of its users sees it."""

    data_dir: Path
    pid: int
    port: int | None  # TCP port on 127.0.0.1; None: unix socket only
    socket_dir: Path
    socket_port: int  # names the socket file
    major: int
    joined: bool  # it was running already
    _users: IO[str] | None = field(repr=False, default=None)

    @property
    def dsn(self) -> str:
        return self.dsn_of("postgres")

    def dsn_of(self, database: str) -> str:
        if self.port is None:
            return socket_dsn(database, self.socket_dir, self.socket_port)
        password = data.read_password(self.data_dir)
        secret = f":{quote(password, safe='')}" if password else ""
        return f"postgresql://{SUPERUSER}{secret}@127.0.0.1:{self.port}/{quote(database, safe='')}"

    def _end(self) -> None:
        super()._end()
        if self.socket_dir != self.data_dir:
            # A server that was killed leaves its socket there: then the directory stays.
            with contextlib.suppress(OSError):
                self.socket_dir.rmdir()


def socket_dsn(database: str, socket_dir: Path, port: int) -> str:
    return f"postgresql://{SUPERUSER}@/{quote(database, safe='')}?host={quote(str(socket_dir), safe='')}&port={port}"


def start(
    data_dir: Path | str,
    *,
    port: int | None = None,
    settings: Mapping[str, str] | None = None,
    run_as: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Server:
    """Start the server of a data directory, made if need be, or join the one that runs on it.

    `port`: None for a unix socket only, 0 for a free TCP port on 127.0.0.1, else that port.
    `settings`: server settings on top of `SETTINGS`; a server that is joined keeps its own.
    `run_as`: as root, "namespace" or "nobody" instead of what works best (also `REDRIVE_PG_AS`).
    `environment`: variables of the server's processes; a server that is joined keeps its own.
    """
    place = Path(data_dir).absolute()
    with data.refusals_for(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        with alone(place):
            running = postmaster.running_on(place)
            if running is not None:
                return _joined(place, running, port=port)
            binaries, identity = usable(data_dir=place, run_as=run_as)
            data.initialise(place, binaries, identity)
            variables = [f"{name}={value}" for name, value in (environment or {}).items()]
            command = ["env", *variables] if variables else []
            command += [str(binaries.bin / "postgres"), "-D", str(place)]
            for name, value in {**SETTINGS, **(settings or {})}.items():
                command += ["-c", f"{name}={value}"]
            return _started(place, identity, command, port=port, major=binaries.major)


def _joined(place: Path, running: Postmaster, *, port: int | None) -> Server:
    listens_on = running.port if running.listens else None
    if port is not None and (listens_on is None or port not in {0, listens_on}):
        has = f"TCP port {listens_on}" if listens_on else "a unix socket only"
        raise AlreadyRunning(
            f"The server of {place} runs as pid {running.pid}, on {has}, and you asked for port {port}.",
            next=f"ask for what it has, or stop it first (kill -INT {running.pid})",
        )
    if not wait(lambda: is_ready(place, running.pid), seconds=START_SECONDS_MAX):
        raise StartFailed(
            f"The server of {place}, pid {running.pid}, was not ready within {START_SECONDS_MAX:.0f} s. "
            f"The end of its log:\n{log_tail(place)}",
            next=f"look at {beside(place, '.log')}",
        )
    tcp, major = listens_on if port is not None else None, data.major_of(place)
    users = join_users(place)
    return Server(place, running.pid, tcp, running.socket_dir, running.port, major, joined=True, _users=users)


def _started(place: Path, identity: Identity, command: list[str], *, port: int | None, major: int) -> Server:
    tries = FREE_PORT_TRIES if port == 0 else 1
    while True:
        tries -= 1
        chosen = free_port() if port == 0 else port
        if chosen is not None and chosen == port:
            _check_port(chosen)
        try:
            pid, socket_dir = _launch(place, identity, command, port=chosen)
            break
        except PortTaken:  # another process took the free port first
            if tries <= 0:
                raise
    socket_port = SOCKET_PORT if chosen is None else chosen
    return Server(place, pid, chosen, socket_dir, socket_port, major, joined=False, _users=join_users(place))


def _check_port(port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError as error:
            raise PortTaken(
                f"Port {port} on 127.0.0.1 cannot be used: {error.strerror}.",
                next="end what listens there (ss -ltnp), or ask for another port, or 0 for a free one",
            ) from error


def _launch(place: Path, identity: Identity, command: list[str], *, port: int | None) -> tuple[int, Path]:
    """After a crash its memory may be in use for a moment: then again."""
    socket_dir = data.socket_dir(place, identity)
    listen = {
        "listen_addresses": "" if port is None else "127.0.0.1",
        "port": str(SOCKET_PORT if port is None else port),
        "unix_socket_directories": str(socket_dir),
        "unix_socket_permissions": "0700",
    }
    for name, value in listen.items():
        command = [*command, "-c", f"{name}={value}"]
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        log_begin = data.turn_log(place)
        pid = postmaster.spawn(place, command, identity)
        if _comes_up(place, pid, deadline=deadline):
            return pid, socket_dir
        processes.stop(pid, place)
        said = log_tail(place, begin=log_begin)
        if "shared memory block" not in said or time.monotonic() > deadline:
            raise _why_not_started(place, said, port=port)


def _comes_up(place: Path, pid: int, *, deadline: float) -> bool:
    wait(lambda: not is_alive(pid) or is_ready(place, pid), seconds=deadline - time.monotonic())
    return is_alive(pid) and is_ready(place, pid)


def _why_not_started(place: Path, said: str, *, port: int | None) -> EmbeddedError:
    if port is not None and "could not bind" in said:
        return PortTaken(f"Port {port} on 127.0.0.1 is taken.", next="ask for another port, or 0 for a free one")
    return StartFailed(
        f"The server of {place} did not start within {START_SECONDS_MAX:.0f} s. The end of its log:\n{said}",
        next=f"mend what the log names ({beside(place, '.log')}), then try again",
    )
