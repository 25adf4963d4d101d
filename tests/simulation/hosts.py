"""Machines that run the relay as `redrive.relay.process` does: loop, duties, suspects; started again when they have
died.

A relay that ends by itself, without having been asked to, is a violation. Its suspects run in a process of their own,
which can be killed like any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from redrive.app import Destination
from redrive.message import WorkerId
from redrive.ports import RelayInfo, Store
from redrive.recover.duties import run_duties
from redrive.recover.engine_duties import engine_duties
from redrive.relay.build import declared
from redrive.relay.clock_watch import ClockWatch
from redrive.relay.context import new_worker
from redrive.relay.crash.child_events import STARTED, WAITING
from redrive.relay.crash.child_process import child_seconds
from redrive.relay.crash.suspects import Suspects
from redrive.relay.loop import Relay
from redrive.relay.tasks import end
from tests.simulation.bell import Bell
from tests.simulation.config import Config
from tests.simulation.database import Server
from tests.simulation.loop import Process, SimulationLoop
from tests.simulation.trace import Trace
from tests.simulation.watch import Watch

KILLED = 137


class VirtualClock:
    """The process's own clock, on whichever loop it runs."""

    def __init__(self, loop: SimulationLoop) -> None:
        self.monotonic = loop.time

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@dataclass(frozen=True)
class Child:
    """A process that runs suspects; ended: its exit code."""

    process: Process
    ended: asyncio.Future[int]


class Host:
    """One machine. process: the relay that runs there now, or None."""

    def __init__(
        self,
        name: str,
        loop: SimulationLoop,
        server: Server,
        bell: Bell,
        destinations: Mapping[str, Destination],
        watch: Watch,
        trace: Trace,
        config: Config,
    ) -> None:
        self.name = name
        self.process: Process | None = None
        self.asked_to_stop = False
        self._loop = loop
        self._server = server
        self._bell = bell
        self._listens = config.listens
        self._destinations = destinations
        self._watch = watch
        self._trace = trace
        self._limits = config.limits
        self._stops_in_time = config.stops_in_time
        self._random = config.random(name)
        self._clock = VirtualClock(loop)
        self._lives = 0
        self._stopping = False
        self._stop = lambda: None
        self._children: list[Child] = []

    def processes(self) -> list[Process]:
        own = [] if self.process is None else [self.process]
        return [*own, *(child.process for child in self._children)]

    def start(self) -> None:
        if self.process is not None or self._stopping:
            return
        self._lives += 1
        process, main = self._loop.start(f"{self.name}.{self._lives}", self._run)
        self.process = process
        self.asked_to_stop = False
        self._trace.note("starts", who=process.name)
        main.add_done_callback(lambda main: self._ended(process, main), context=self._loop.world.context)

    def stop(self) -> None:
        """Ask the relay to stop, as a signal does."""
        if self.process is not None:
            self._trace.note("asked to stop", who=self.process.name)
            self.asked_to_stop = True
            self._loop.call_soon(self._stop, context=self.process.context)

    def stop_for_good(self) -> None:
        self._stopping = True
        self.stop()

    def kill(self, process: Process) -> None:
        """Between two of its callbacks."""
        if process.dead:
            return
        self._trace.note("killed", who=process.name)
        self._vanish(process)
        for child in [child for child in self._children if child.process is process]:
            self._bury(child, KILLED)
        if process is self.process:
            self.process = None
            self._loop.in_world(self._random.uniform(0, 2), self.start)

    def _ended(self, process: Process, main: asyncio.Task[None]) -> None:
        if process.dead:  # killed after its last callback
            return
        self._trace.note("ended", who=process.name)
        self._vanish(process)
        self.process = None
        if main.cancelled() or main.exception() is not None:
            self._watch.violated(f"the relay died: {main.exception()!r}")
        elif self._stops_in_time:
            self._watch.stopped(process)
        self._loop.in_world(self._random.uniform(0, 1), self.start)

    def _vanish(self, process: Process) -> None:
        """What is left of it when it is no more: nothing, and nothing that it held open."""
        self._loop.kill(process)
        self._server.roll_back(process)

    async def _run(self, process: Process) -> None:
        """As `run_relay` does it."""
        events, store, worker = process.events, self._server.connect(), new_worker(self._random)
        watch = self._clock_watch(store, worker, process)
        relay = self._relay(store, worker, process, watch=watch)
        suspects = Suspects(
            store,
            {name: child_seconds(one, self._limits) for name, one in self._destinations.items()},
            self._run_alone,
            clock=self._clock,
            random=self._random,
            events=events,
        )
        duties = engine_duties(
            reap_every_seconds=self._limits.reap_every_seconds,
            partition_days=7,
            partitions_ahead=4,
            retention_days=None,
            expected_time=watch.expected_time,
            events=events,
        )
        alone = asyncio.create_task(suspects.run())
        upkeep = asyncio.create_task(run_duties(store, duties, worker=worker, clock=self._clock, events=events))
        running = asyncio.create_task(relay.run())

        def stop() -> None:
            relay.stop()
            if not alone.cancelling():
                alone.cancel()

        self._stop = stop
        await asyncio.wait([running, alone, upkeep], return_when=asyncio.FIRST_COMPLETED)
        stop()
        await running
        for task in (alone, upkeep):
            if task.done() and not task.cancelled():
                task.result()
        await end([upkeep])
        await asyncio.gather(alone, return_exceptions=True)

    def _clock_watch(self, store: Store, worker: WorkerId, process: Process) -> ClockWatch:
        return ClockWatch(
            store,
            worker,
            elapsed=self._loop.time,
            confirm_seconds=0.9 * self._limits.heartbeat_seconds,
            events=process.events,
        )

    def _relay(
        self,
        store: Store,
        worker: WorkerId,
        process: Process,
        *,
        watch: ClockWatch | None = None,
        suspects_of: str | None = None,
    ) -> Relay:
        destinations = self._destinations if suspects_of is None else {suspects_of: self._destinations[suspects_of]}
        self._trace.name(worker, process.name)
        self._watch.workers[worker] = process
        info = RelayInfo(
            worker=worker,
            name=process.name,
            host=self.name,
            pid=self._lives,
            version="0",
            **declared(destinations),
            suspects_only=suspects_of is not None,
        )
        return Relay(
            store,
            destinations,
            info=info,
            limits=self._limits,
            clock=self._clock,
            random=Random(self._random.random()),
            events=process.events,
            open_listen_connection=partial(self._bell.line, worker) if self._listens and suspects_of is None else None,
            clock_watch=watch or self._clock_watch(store, worker, process),
        )

    # suspects

    async def _run_alone(self, worker: WorkerId, destination: str, on_told: Callable[[str], None]) -> int:
        """A child process; asked to stop when its parent is, and left to itself when its parent is killed."""
        relays: list[Relay] = []
        parent = self.process
        assert parent is not None

        def run(process: Process) -> Coroutine[Any, Any, None]:
            relays.append(self._relay(self._server.connect(), worker, process, suspects_of=destination))
            return relays[0].run()

        def tell(name: str, _: object) -> None:
            self._loop.call_soon(on_told, name, context=parent.context)

        process, main = self._loop.start(f"{self.name}.{self._lives}a {destination}", run)
        process.events.subscribe(tell, STARTED, WAITING)
        child = Child(process, self._loop.create_future())
        self._children.append(child)
        self._trace.note("starts", who=process.name)
        main.add_done_callback(lambda main: self._child_ended(child, main), context=self._loop.world.context)
        try:
            return await asyncio.shield(child.ended)
        except asyncio.CancelledError:
            self._loop.call_soon(relays[0].stop, context=process.context)
            await child.ended
            raise

    def _child_ended(self, child: Child, main: asyncio.Task[None]) -> None:
        if child.process.dead:
            return
        if main.cancelled() or main.exception() is not None:
            self._watch.violated(f"the relay of the suspects died: {main.exception()!r}")
        self._vanish(child.process)
        self._bury(child, 0)

    def _bury(self, child: Child, code: int) -> None:
        self._children.remove(child)
        if not child.ended.done():
            child.ended.set_result(code)
