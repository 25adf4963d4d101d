"""Registers the relay and sends its heartbeat.

Each heartbeat looks at the database's clock, reads which destinations and limit keys are paused or down, and asks
whether the database knows the money that was sent.
"""

from contextlib import suppress
from dataclasses import dataclass

from redrive.ports import TransientFailure
from redrive.relay.backpressure.gate import DestinationGate
from redrive.relay.clock_watch import ClockWatch
from redrive.relay.context import UNREACHABLE_SECONDS, RelayContext
from redrive.relay.crash.money_check import MoneyCheck
from redrive.relay.dispatching.queues import DestinationQueues
from redrive.relay.tasks import until_set
from redrive.relay.wakeup.doorbell import Doorbell


@dataclass(eq=False)
class Heartbeat:
    context: RelayContext
    queues: DestinationQueues
    gate: DestinationGate
    money: MoneyCheck
    doorbell: Doorbell
    clock_watch: ClockWatch | None

    async def start(self) -> bool:
        """False: stopped before the database was there."""
        context = self.context
        while not context.stopping.is_set():
            try:
                await self._register()
                await self._watch_clock()
                await self.gate.keys.refresh()
                await self.money.ask()
                return True
            except TransientFailure:
                context.events.emit("relay.unreachable", during="verb", tries=0)
                context.changed.clear()
                await until_set(context.changed, UNREACHABLE_SECONDS)
        return False

    async def run(self) -> None:
        while True:
            await until_set(self.context.beat_asked, self.context.limits.heartbeat_seconds)
            self.context.beat_asked.clear()
            with suppress(TransientFailure):
                await self._beat()

    async def _beat(self) -> None:
        context = self.context
        await self._watch_clock()
        with context.events.step("heartbeat", worker=context.worker):
            states = await context.store.heartbeat(context.worker, listener=self.doorbell.state)
        if not states and not context.stopping.is_set():  # else the row is gone because the relay deregistered
            await self._register()
        await self.gate.apply(states)
        await self.gate.keys.refresh()
        await self.money.ask()

    async def _register(self) -> None:
        with self.context.events.step("register", worker=self.context.worker):
            await self.context.store.register(self.context.info)

    async def deregister(self) -> None:
        with self.context.events.step("deregister", worker=self.context.worker):
            await self.context.store.deregister(self.context.worker)

    async def _watch_clock(self) -> None:
        """Before anything follows from what the database's clock says (G-33)."""
        if self.clock_watch is None:
            return
        await self.clock_watch.look()
        for queue in self.queues.values():
            queue.dispatcher.clock_jumps = self.clock_watch.jumps
        self.context.changed.set()
