"""One proof's surroundings: a directory, a database, an observer, and the processes that are started around them.

Used by `redrive prove engine` and by the crash tests. Everything that is started here is ended here.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Final, LiteralString, Self

import psycopg

from redrive.prove import checker, client, config, faults
from redrive.prove.evidence import Evidence, gather
from redrive.prove.processes import Ended, Process, Processes
from redrive.prove.producer import Order, produce
from redrive.prove.script import Script, quiet

READY_SECONDS = 20.0
LOOK_SECONDS = 0.02

_OPEN: Final = """
SELECT (SELECT count(*) FROM redrive.lease)
     + (SELECT count(*) FROM redrive.pending p
         WHERE NOT EXISTS (SELECT FROM redrive.parked k WHERE k.lane = p.lane AND k.halts AND k.sequence < p.sequence))
"""


class Environment:
    """place: a directory of its own, with a short path (a socket lies in it). dsn: a migrated database of its own.

    wire: the same database as relays and producers reach it, where that is another way.
    """

    def __init__(
        self, place: Path, dsn: str, *, agreed: config.Config = config.DEFAULT, wire: str | None = None
    ) -> None:
        self.place = place
        self.dsn = dsn
        self.config = agreed
        self.log = place / "observer.log"
        self.socket = place / "observer"
        self.ended = threading.Event()
        self._marks = 0
        self._producers: list[Path] = []
        # Children must find what we have found, however this process was started.
        path = os.pathsep.join(entry for entry in sys.path if entry)
        self.processes = Processes(
            place, {"REDRIVE_DSN": wire or dsn, client.SOCKET_VARIABLE: str(self.socket), "PYTHONPATH": path}
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Whoever waits stops waiting, whatever runs is ended. Safe to repeat."""
        self.ended.set()
        self.processes.end()

    def prepare(self) -> None:
        """The application's own tables."""
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            conn.execute(config.TABLES)

    def observe(self, script: Script | None = None) -> Process:
        """Start the destination, or start it again on its own log; returns when it listens."""
        self.socket.unlink(missing_ok=True)
        settings = {"script": asdict(script or quiet()), "remembers": self.config.lookups}
        process = self.processes.start(
            "observer", "redrive.prove.observer", str(self.socket), str(self.log), settings=settings
        )
        if not self.wait(self.socket.exists, seconds=READY_SECONDS):
            raise RuntimeError(f"The observer did not start; see {process.said}.")
        return process

    def relay(
        self,
        name: str = "relay",
        *,
        app: str | None = None,
        only: Sequence[str] = (),
        failpoint: faults.Failpoint | None = None,
        mark: Path | None = None,
        limits: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Process:
        """Start a relay; with a failpoint, `mark` says when it has fired."""
        settings: dict[str, Any] = {
            "name": name,
            "only": list(only),
            "limits": self.config.relay_limits(**dict(limits or {})),
            "retention_days": 1.0,
        }
        if app:
            settings["app"] = app
        surroundings = dict(environment or {})
        if failpoint:
            surroundings[faults.VARIABLE] = str(failpoint)
            surroundings[faults.MARK_VARIABLE] = str(mark or self.mark())
        return self.processes.start(name, "redrive.prove.relay", settings=settings, environment=surroundings)

    def mark(self) -> Path:
        """A file that is not there yet."""
        self._marks += 1
        return self.place / f"mark-{self._marks}"

    def produce(self, order: Order) -> Process:
        """Start a producer with a log of its own."""
        log = self.place / f"producer-{order.name}.log"
        self._producers.append(log)
        return self.processes.start(
            f"producer-{order.name}",
            "redrive.prove.producer",
            str(log),
            settings=asdict(order),
        )

    def enqueue(self, order: Order) -> None:
        """The same in this process, which nobody kills."""
        log = self.place / f"producer-{order.name}.log"
        self._producers.append(log)
        produce(self.dsn, log, order, durable=False)

    def rows(self, query: LiteralString, *values: object) -> list[tuple[Any, ...]]:
        """What a query gives; a database that is away is waited for."""
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

    def value(self, query: LiteralString, *values: object) -> Any:
        """The first column of the first row, None where there is no row."""
        found = self.rows(query, *values)
        return found[0][0] if found else None

    def counts(self) -> dict[str, int]:
        """How many messages are pending, leased, parked and closed, in one snapshot."""
        (row,) = self.rows("SELECT enqueued, pending, leased, parked, closed FROM redrive.conservation")
        return dict(zip(("enqueued", "pending", "leased", "parked", "closed"), row, strict=True))

    def wait(self, condition: Callable[[], Any], *, seconds: float) -> bool:
        """Whether it became true in time. An end of the whole proof ends the wait."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                return False
            if self.ended.wait(LOOK_SECONDS):
                raise Ended
        return True

    def settle_down(self, *, seconds: float) -> bool:
        """Whether it became quiet, before no attempt had ended for `seconds`, or ten times that was over."""
        began = moved = time.monotonic()
        ended = -1
        while not self.is_quiet():
            count = self.value("SELECT count(*) FROM redrive.attempt")
            now = time.monotonic()
            if count != ended:
                ended, moved = count, now
            if now > moved + seconds or now > began + 10 * seconds:
                return False
            if self.ended.wait(LOOK_SECONDS):
                raise Ended
        return True

    def is_quiet(self) -> bool:
        """Nothing is in hand, and whatever is pending waits behind a head that waits for a person."""
        return bool(self.value(_OPEN) == 0)

    def evidence(self) -> Evidence:
        return gather(self.dsn, observer=self.log, producers=self._producers)

    def verdict(self) -> checker.Verdict:
        return checker.check(self.evidence(), self.config)
