"""One schedule: everything that a seed decides, from the first message to the silence at the end.

Until `calm_at` producers enqueue and everything may fail. Then nothing fails any more, and within a bounded time every
message must be closed or parked, by itself: no new message comes to wake anybody. At last the relays are asked to stop.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from redrive.message import Fence
from tests.simulation.allowance import Allowance
from tests.simulation.bell import Bell
from tests.simulation.config import RECORDED, Config, draw
from tests.simulation.database import Database, Records, Server
from tests.simulation.faults import Adversary
from tests.simulation.hosts import Host
from tests.simulation.loop import SimulationLoop
from tests.simulation.people import Desk, Producers
from tests.simulation.rail import Rail
from tests.simulation.trace import Trace
from tests.simulation.watch import Watch

LOOK_EVERY_SECONDS: Final = 0.25
STOP_WITHIN_SECONDS: Final = 15.0
STEPS_MAX: Final = 2_000_000


@dataclass(frozen=True)
class Ran:
    """seconds: simulated. violations: empty when all was well."""

    seed: int
    violations: tuple[str, ...]
    trace: Trace
    seconds: float
    sends: int
    effects: int
    late_sends: int
    calls: int
    failures: int
    strikes: int


class Schedule:
    """Puts the parts together."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.loop = SimulationLoop(config.random("loop"))
        self.trace = Trace(self.loop)
        self.rail = Rail(self.loop, self.trace, config)
        self.bell = Bell(self.loop, config)
        self.database = Database(self.loop, self.bell, config.random("ids"))
        self.watch = Watch(
            self.loop,
            self.trace,
            self.rail,
            Allowance(config, self.database.known),
            place_of=self.database.place_of,
            conservation=self.database.conservation,
        )
        self.rail.witness = self.watch
        self.database.on_move = self.watch.moved
        self.server = Server(self.loop, self.database, self.watch, self.trace, config)
        self.records = Records(self.loop, config)
        destinations = {
            name: config.destination(name, self.rail.transport(name), self.records if name == RECORDED else None)
            for name in config.names
        }
        self.hosts = [
            Host(f"relay{n}", self.loop, self.server, self.bell, destinations, self.watch, self.trace, config)
            for n in range(1, config.relays + 1)
        ]
        self.desk = Desk(self.server, self.rail, self.watch, config)
        self.adversary = Adversary(self.loop, self.server, self.hosts, self.desk, self.trace, config)
        self.producers = Producers(self.loop, self.database, self.watch, self.trace, config)

    def run(self) -> Ran:
        main = self.loop.create_task(self._main(), context=self.loop.world.context)
        main.add_done_callback(lambda _: self.loop.stop(), context=self.loop.world.context)
        try:
            self.loop.run_forever()
            if main.done() and main.exception() is not None:
                raise main.exception() or AssertionError
            for error in self.loop.errors:
                self.watch.violated(f"a callback raised {error!r}")
        finally:
            self.loop.bury()
        return Ran(
            seed=self.config.seed,
            violations=tuple(self.watch.violations),
            trace=self.trace,
            seconds=self.loop.now,
            sends=self.rail.sends,
            effects=self.rail.effects.total(),
            late_sends=self.watch.late_sends,
            calls=self.server.calls,
            failures=self.server.failures,
            strikes=self.adversary.strikes,
        )

    async def _main(self) -> None:
        for host in self.hosts:
            host.start()
        await asyncio.gather(self.producers.run(), self.adversary.run())
        await asyncio.sleep(self.config.calm_at - self.loop.now)
        await self._calm_down()
        await self._until_quiet()
        await self._stop_all()
        self.watch.no_answer_is_lost({Fence(a.message_id, a.attempt) for a in self.database.late_answers})
        for id in self.watch.lives:
            self.watch.look_back(id, await self.database.history(id))

    async def _calm_down(self) -> None:
        self.trace.note("calm")
        for part in (self.server, self.rail, self.records, self.bell, self.adversary):
            part.calm = True
        self.watch.survivors = {
            host.process for host in self.hosts if host.process is not None and not host.asked_to_stop
        }
        await self.desk.resume_all()

    async def _until_quiet(self) -> None:
        deadline = self.loop.now + self.config.quiet_within_seconds
        while left := self.watch.unsettled():
            if self.loop.now > deadline:
                self.watch.violated("still not settled:", left)
            await asyncio.sleep(LOOK_EVERY_SECONDS)
            if any(
                self.database.is_paused_for_good(name) for name in self.config.names
            ):  # by bugs, counted before it was calm
                await self.desk.resume_all()

    async def _stop_all(self) -> None:
        for host in self.hosts:
            host.stop_for_good()
        deadline = self.loop.now + STOP_WITHIN_SECONDS
        while any(host.processes() for host in self.hosts):
            if self.loop.now > deadline:
                self.watch.violated(
                    "still running:", [process.name for host in self.hosts for process in host.processes()]
                )
            await asyncio.sleep(LOOK_EVERY_SECONDS)
        if self.database.conservation().leased:
            self.watch.violated("a relay that was asked to stop has left claims behind")


def run(seed: int) -> Ran:
    return Schedule(draw(seed)).run()
