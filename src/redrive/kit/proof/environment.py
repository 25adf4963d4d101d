"""The environment of one proof: a directory, a database, relays and other processes. It ends what it starts."""

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, LiteralString, Self

import psycopg

from redrive.kit.proof import failpoints
from redrive.kit.proof.processes import Ended, Process, Processes, patience

READY_SECONDS = 20.0
LOOK_SECONDS = 0.02
RELAY_LIMITS: Mapping[str, Any] = {
    "lease_seconds": 2.0,
    "reap_every_seconds": 0.5,
    "heartbeat_seconds": 0.3,
    "poll_seconds": 0.1,
    "record_timeout_seconds": 1.0,
    "stop_seconds": 3.0,
    "concurrency": 20,
    "claim_max": 40,
}


class ProofEnvironment:
    """directory: with a short path, because sockets lie in it. wire: how relays and producers reach the database, if
    not by `dsn`. limits: of relays, over RELAY_LIMITS. variables: of all processes. app: what relays run.
    """

    app: str = ""

    def __init__(
        self,
        directory: Path,
        dsn: str,
        *,
        wire: str | None = None,
        limits: Mapping[str, Any] | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self.dsn = dsn
        self.ended = threading.Event()
        self._limits = {**RELAY_LIMITS, **(limits or {})}
        self._marks = 0
        # Children must find what we have found, however this process was started.
        path = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path if entry)
        self.processes = Processes(directory, {"REDRIVE_DSN": wire or dsn, "PYTHONPATH": path, **(variables or {})})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Safe to repeat."""
        self.ended.set()
        self.processes.end()

    def relay(
        self,
        name: str = "relay",
        *,
        app: str | None = None,
        only: Sequence[str] = (),
        failpoint: failpoints.Failpoint | None = None,
        mark: Path | None = None,
        limits: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Process:
        """With a failpoint, `mark` says when it has fired."""
        settings = {
            "app": app or self.app,
            "name": name,
            "only": list(only),
            "limits": {**self._limits, **(limits or {})},
            "retention_days": 1.0,
        }
        variables = dict(environment or {})
        if failpoint:
            variables[failpoints.VARIABLE] = str(failpoint)
            variables[failpoints.MARK_VARIABLE] = str(mark or self.mark())
        return self.processes.start(name, "redrive.kit.proof.relay", settings=settings, environment=variables)

    def server(self, name: str, module: str, **settings: Any) -> str:
        """A module that gets its settings on standard input: the address that is the first line it prints."""
        process = self.processes.start(name, module, settings=settings)
        if not self.wait(lambda: _first_line(process.said), seconds=READY_SECONDS * patience()):
            raise RuntimeError(f"{name} did not start; see {process.said}.")
        return _first_line(process.said)

    def mark(self) -> Path:
        """A file that is not there yet."""
        self._marks += 1
        return self.directory / f"mark-{self._marks}"

    def rows(self, query: LiteralString, *values: object) -> list[tuple[Any, ...]]:
        """Waits for a database that is away."""
        found: list[tuple[Any, ...]] = []

        def asked() -> bool:
            nonlocal found
            try:
                with psycopg.connect(self.dsn, autocommit=True) as conn:
                    found = conn.execute(query, values).fetchall()
            except psycopg.OperationalError:
                return False
            return True

        if not self.wait(asked, seconds=READY_SECONDS):
            raise RuntimeError(f"The database did not answer for {READY_SECONDS:.0f} s.")
        return found

    def execute(self, statement: LiteralString) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            conn.execute(statement)

    def value(self, query: LiteralString, *values: object) -> Any:
        found = self.rows(query, *values)
        return found[0][0] if found else None

    def counts(self) -> dict[str, int]:
        (row,) = self.rows("SELECT enqueued, pending, leased, parked, closed FROM redrive.conservation")
        return dict(zip(("enqueued", "pending", "leased", "parked", "closed"), row, strict=True))

    def wait(self, condition: Callable[[], Any], *, seconds: float, every_seconds: float = LOOK_SECONDS) -> bool:
        """Whether it became true in time."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                return False
            if self.ended.wait(every_seconds):
                raise Ended
        return True


def _first_line(said: Path) -> str:
    """Once it is whole; else empty."""
    with suppress(OSError):
        first, newline, _ = said.read_text("utf-8", "replace").partition("\n")
        return first.strip() if newline else ""
    return ""
