"""The doorbell between producers and idle relays: rung for whom has asked, late, and sometimes not heard at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from redrive.message import WorkerId
from redrive.ports import Heard, TransientFailure
from tests.simulation.config import Config
from tests.simulation.loop import SimulationLoop

LATENCY_SECONDS = 0.005


class HeardLine:
    """One process's connection. What is said while nobody waits is heard at the next look."""

    def __init__(self, loop: SimulationLoop) -> None:
        self._loop = loop
        self._said: set[str] = set()
        self._news: asyncio.Future[None] = loop.create_future()

    def say(self, what: str) -> None:
        self._said.add(what)
        if not self._news.done():
            self._news.set_result(None)

    async def wait(self, seconds: float) -> Heard:
        if not self._said:
            self._news = self._loop.create_future()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._news
        said, self._said = self._said, set()
        if "lost" in said:
            raise TransientFailure("the line was lost")
        return Heard("rung" in said, "echoed" in said)


class Bell:
    """Who listens, and who has asked to be rung for what, until when."""

    def __init__(self, loop: SimulationLoop, config: Config) -> None:
        self.calm = False
        self._loop = loop
        self._random = config.random("bell")
        self._lost = config.share("line_lost")
        self._lines: dict[WorkerId, HeardLine] = {}
        self._dozing: dict[WorkerId, tuple[Sequence[str], float]] = {}

    @asynccontextmanager
    async def line(self, worker: WorkerId) -> AsyncIterator[HeardLine]:
        self._lines[worker] = HeardLine(self._loop)
        yield self._lines[worker]

    def announce_idle(self, worker: WorkerId, destinations: Sequence[str], seconds: float) -> None:
        self._dozing[worker] = (destinations, self._loop.now + seconds)

    def ring(self, destination: str) -> None:
        for destinations, until in self._dozing.values():
            if destination in destinations and self._loop.now <= until:
                for worker in self._lines:
                    self.say(worker, "rung")
                return

    def say(self, worker: WorkerId, what: str) -> None:
        line = self._lines.get(worker)
        if line is not None:
            lost = not self.calm and self._random.random() < self._lost
            said = self._random.choice((None, "lost")) if lost else what
            if said is not None:
                self._loop.in_world(LATENCY_SECONDS, line.say, said)
