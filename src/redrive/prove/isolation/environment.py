"""Where a case is run: its own database, real relay processes, and neighbours whose delays are measured.

A delay is the time from the commit of a message to the start of its handler, by the machine's monotonic clock.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg

import redrive
from redrive.kit.proof.processes import Process
from redrive.prove.environment import Environment

APP: Final = "redrive.prove.isolation.app:app"
NEIGHBOUR: Final = "neighbour"
RATED: Final = "rated"
RATED_PER_SECOND: Final = 10.0
LOG_VARIABLE: Final = "REDRIVE_ISOLATION_LOG"
ARRIVE_SECONDS: Final = 60.0


@dataclass(frozen=True)
class Figure:
    """One measured number. bound: what it may be at most; None = it is shown for comparison only."""

    what: str
    measured: float
    unit: str
    bound: float | None = None

    @property
    def holds(self) -> bool:
        return self.bound is None or self.measured <= self.bound


@dataclass(frozen=True, slots=True)
class Delays:
    """Of neighbours, in milliseconds. missing: so many had not arrived after a minute."""

    median_ms: float
    p99_ms: float
    max_ms: float
    missing: int

    @classmethod
    def of(cls, seconds: list[float], *, missing: int) -> Delays:
        ordered = [*sorted(seconds), *[ARRIVE_SECONDS] * missing] or [ARRIVE_SECONDS]
        return cls(
            median_ms=statistics.median(ordered) * 1000,
            p99_ms=ordered[min(int(len(ordered) * 0.99), len(ordered) - 1)] * 1000,
            max_ms=ordered[-1] * 1000,
            missing=missing,
        )


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

    def send(self, destination: str, keys: list[str], payload: Mapping[str, Any] | None = None) -> None:
        """Each committed by itself."""
        with psycopg.connect(self.dsn) as conn:
            for key in keys:
                redrive.enqueue(conn, destination, dict(payload or {}), key=key)
                conn.commit()

    def wait_begun(self, keys: list[str], *, seconds: float = ARRIVE_SECONDS) -> bool:
        return self.wait(lambda: set(keys) <= self.begun().keys(), seconds=seconds)

    def measure_neighbours(
        self,
        name: str,
        *,
        count: int = 200,
        every_seconds: float = 0.01,
        destination: str = NEIGHBOUR,
        payload: Mapping[str, Any] | None = None,
    ) -> Delays:
        """Delays of messages of a destination that has nothing to do with the trouble, one by one."""
        keys = [f"{name}/{number}" for number in range(count)]
        committed: dict[str, float] = {}
        with psycopg.connect(self.dsn) as conn:
            for key in keys:
                redrive.enqueue(conn, destination, dict(payload or {}), key=key)
                conn.commit()
                committed[key] = time.monotonic()
                time.sleep(every_seconds)
        self.wait_begun(keys)
        begun = self.begun()
        arrived = {key: min(begun[key]) for key in keys if key in begun}
        waited = [max(at - committed[key], 0.0) for key, at in arrived.items()]
        return Delays.of(waited, missing=count - len(arrived))


def milliseconds(call: Callable[[], object], *, times: int = 20) -> float:
    """The median time of one call."""
    spent = []
    for _ in range(times):
        began = time.monotonic()
        call()
        spent.append(time.monotonic() - began)
    return statistics.median(spent) * 1000
