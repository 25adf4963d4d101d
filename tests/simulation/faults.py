"""Strikes against the processes and the database, at moments drawn from the seed.

A process is struck between two of its own callbacks: so many after the moment, or, whoever it is, right after the next
event of some name. That is where a crash in the middle of something lies, and not where everything has come to rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final

from tests.simulation.config import Config, Fault
from tests.simulation.database import Server
from tests.simulation.hosts import Host
from tests.simulation.loop import Process, SimulationLoop
from tests.simulation.people import Desk
from tests.simulation.trace import Trace

STEPS_MAX: Final = 60
BOUNDARIES: Final = (
    "claim.stop",
    "claim_suspect.stop",
    "dispatch.start",
    "lookup.stop",
    "send.start",
    "settle.start",
    "settle.stop",
    "settle_one.start",
    "record.start",
    "renew.start",
    "hand_back.start",
    "reap.stop",
)
STRIKES: Final[Mapping[Fault, int]] = {
    "killed": 4,
    "stopped": 2,
    "suspended": 2,
    "asked_to_stop": 1,
    "outage": 1,
    "paused": 1,
    "cancelled": 2,
    "desk": 2,
}


class Adversary:
    """Draws when, whom, and how."""

    def __init__(
        self, loop: SimulationLoop, server: Server, hosts: Sequence[Host], desk: Desk, trace: Trace, config: Config
    ) -> None:
        self.calm = False
        self.strikes = 0
        self._loop = loop
        self._server = server
        self._hosts = hosts
        self._desk = desk
        self._trace = trace
        self._terms = config
        self._random = config.random("faults")
        self._people: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        kinds = [kind for kind in STRIKES if kind in self._terms.faults]
        if not kinds:
            return
        moments = sorted(self._random.uniform(0, self._terms.calm_at) for _ in range(self._terms.strikes))
        weights = [STRIKES[kind] for kind in kinds]
        for at in moments:
            await asyncio.sleep(at - self._loop.now)
            self._strike(self._random.choices(kinds, weights)[0])

    def _strike(self, kind: Fault) -> None:
        self.strikes += 1
        match kind:
            case "killed":
                self._hit(self._kill)
            case "stopped" | "suspended":
                self._hit(partial(self._halt, kind))
            case "asked_to_stop":
                self._random.choice(self._hosts).stop()
            case "outage":
                self._server.away_until = self._loop.now + self._random.uniform(0.05, 2)
                self._trace.note("goes away until", self._server.away_until, who="store")
            case "paused":
                self._ask(self._desk.pause_one(self._random.uniform(0.1, 3)))
            case "cancelled":
                self._ask(self._desk.cancel_one())
            case "desk":
                act = self._random.choices((self._desk.clear_one, self._desk.skip_one, self._desk.test_one), (4, 1, 1))[
                    0
                ]
                self._ask(act())

    def _hit(self, strike: Callable[[Process], None]) -> None:
        """Somebody, a few callbacks from now; or whoever next comes to a certain point."""

        def hit(process: Process) -> None:
            if not self.calm:
                strike(process)

        if self._random.random() < 0.5:
            living = [process for host in self._hosts for process in host.processes() if not process.halted]
            if living:
                process = self._random.choice(living)
                process.after_steps(self._random.randint(1, STEPS_MAX), partial(hit, process))
        else:
            point = self._random.choice(BOUNDARIES)
            self._loop.at_next(point, lambda process: process.after_steps(1, partial(hit, process)))

    def _kill(self, process: Process) -> None:
        for host in self._hosts:
            if process in host.processes():
                host.kill(process)

    def _halt(self, kind: Fault, process: Process) -> None:
        seconds = (
            self._random.choice((0.05, 0.5, 1.2)) * self._random.uniform(0.5, 2) * self._terms.limits.lease_seconds
        )
        self._trace.note(f"{kind} for", seconds, who=process.name)
        self._loop.halt(process, seconds, clock_stands_still=kind == "suspended")

    def _ask(self, act: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(act)
        self._people.add(task)
        task.add_done_callback(self._people.discard)
