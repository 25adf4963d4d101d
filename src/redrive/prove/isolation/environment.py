"""Where a case is run: its own database, real relay processes, and neighbours whose delays are measured.

A delay is the time from the commit of a message to the start of its handler, by the machine's monotonic clock.
"""

import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg

import redrive
from redrive.kit.proof.processes import Process
from redrive.prove.environment import Environment

APP: Final = "redrive.prove.isolation.app:app"
NEIGHBOUR: Final = "neighbour"
HELD_KEY: Final = "held"  # the ordering key that a producer holds open
RATED: Final = "rated"
RATED_PER_SECOND: Final = 10.0
SUSPECTS: Final = 12  # of each destination whose relay dies
SUSPECT_TIMEOUT_SECONDS: Final = 10.0
LOG_VARIABLE: Final = "REDRIVE_ISOLATION_LOG"
ARRIVE_SECONDS: Final = 60.0


@dataclass(frozen=True)
class Figure:
    """One measured number. bound: what it may be at most; None = it is shown for comparison only."""

    what: str
    measured: float
    unit: str = ""
    bound: float | None = None

    @property
    def holds(self) -> bool:
        return self.bound is None or self.measured <= self.bound


@dataclass(frozen=True, slots=True)
class Delays:
    """Of neighbours. missing: so many had not arrived after a minute."""

    p99_ms: float
    missing: int


class CaseEnvironment(Environment):
    @property
    def begun_log(self) -> Path:
        return self.directory / "begun.log"

    def start_relay(self, *, app: str = APP, limits: Mapping[str, Any] | None = None) -> Process:
        return self.relay(app=app, limits=limits, environment={LOG_VARIABLE: str(self.begun_log)})

    def begun(self) -> dict[str, list[float]]:
        """When handlers began, by the message's key."""
        found: dict[str, list[float]] = {}
        if self.begun_log.exists():
            for line in self.begun_log.read_text().splitlines():
                said = json.loads(line)
                found.setdefault(said["key"], []).append(said["at"])
        return found

    def sent_twice(self) -> int:
        return sum(len(times) > 1 for times in self.begun().values())

    def send(
        self,
        destination: str,
        keys: Sequence[str],
        payload: Mapping[str, Any] | None = None,
        *,
        every_seconds: float = 0.0,
    ) -> dict[str, float]:
        """Each committed by itself; returns when."""
        committed: dict[str, float] = {}
        with psycopg.connect(self.dsn) as conn:
            for key in keys:
                redrive.enqueue(conn, destination, dict(payload or {}), key=key)
                conn.commit()
                committed[key] = time.monotonic()
                time.sleep(every_seconds)
        return committed

    def wait_begun(self, keys: list[str], *, seconds: float = ARRIVE_SECONDS) -> bool:
        return self.wait(lambda: set(keys) <= self.begun().keys(), seconds=seconds)

    def measure_neighbours(
        self,
        name: str,
        *,
        count: int = 200,
        destination: str = NEIGHBOUR,
        payload: Mapping[str, Any] | None = None,
    ) -> Delays:
        """Delays of messages of a destination that has nothing to do with the trouble, one by one."""
        keys = [f"{name}/{number}" for number in range(count)]
        committed = self.send(destination, keys, payload, every_seconds=0.01)
        self.wait_begun(keys)
        begun = self.begun()
        waited = sorted(
            max(min(begun[key]) - at, 0.0) if key in begun else ARRIVE_SECONDS for key, at in committed.items()
        )
        return Delays(
            p99_ms=waited[min(int(count * 0.99), count - 1)] * 1000, missing=sum(key not in begun for key in keys)
        )


Case = Callable[[CaseEnvironment], list[Figure]]


def milliseconds(call: Callable[[], object], *, times: int = 20) -> float:
    """The median time of one call."""
    spent = []
    for _ in range(times):
        began = time.monotonic()
        call()
        spent.append(time.monotonic() - began)
    return statistics.median(spent) * 1000
