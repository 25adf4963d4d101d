"""Registers the relay, and says at every heartbeat that it lives; reads in return what others changed.

With each heartbeat the relay looks at the database's clock, hears which destinations and limit keys are paused or down,
and asks whether the database knows the money that was sent.
"""

from __future__ import annotations

from contextlib import suppress

from redrive.ports import TransientFailure
from redrive.relay.backpressure.gate import DestinationGate
from redrive.relay.clock_watch import ClockWatch
from redrive.relay.context import RelayContext
from redrive.relay.crash.money_check import MoneyCheck
from redrive.relay.dispatching.queues import DestinationQueues
from redrive.relay.tasks import until_set
from redrive.relay.until_reachable import UNREACHABLE_SECONDS
from redrive.relay.wakeup.doorbell import Doorbell


class Heartbeat:
    def __init__(
        self,
        context: RelayContext,
        queues: DestinationQueues,
        *,
        gate: DestinationGate,
        money: MoneyCheck,
        doorbell: Doorbell,
        clock_watch: ClockWatch | None,
    ) -> None:
        self._context = context
        self._queues = queues
        self._gate = gate
        self._money = money
        self._doorbell = doorbell
        self._clock_watch = clock_watch

    async def start(self) -> bool:
        """Register, and know the clock, the limit keys and the money. False: stopped before the database was there."""
        context = self._context
        while not context.stopping.is_set():
            try:
                await self._register()
                await self._watch_clock()
                await self._gate.keys.refresh()
                await self._money.ask()
                return True
            except TransientFailure:
                context.events.emit("relay.unreachable", during="verb", tries=0)
                context.changed.clear()
                await until_set(context.changed, UNREACHABLE_SECONDS)
        return False

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await until_set(self._context.beat_asked, self._context.limits.heartbeat_seconds)
            self._context.beat_asked.clear()
            with suppress(TransientFailure):
                await self._beat()

    async def _beat(self) -> None:
        context = self._context
        await self._watch_clock()
        with context.events.step("heartbeat", worker=context.worker):
            states = await context.store.heartbeat(context.worker, listener=self._doorbell.state)
        if not states and not context.stopping.is_set():  # else the row is gone because the relay deregistered
            await self._register()
        await self._gate.apply(states)
        await self._gate.keys.refresh()
        await self._money.ask()

    async def _register(self) -> None:
        with self._context.events.step("register", worker=self._context.worker):
            await self._context.store.register(self._context.info)

    async def deregister(self) -> None:
        with self._context.events.step("deregister", worker=self._context.worker):
            await self._context.store.deregister(self._context.worker)

    async def _watch_clock(self) -> None:
        """Before anything follows from what the database's clock says (G-33)."""
        if self._clock_watch is None:
            return
        await self._clock_watch.look()
        for queue in self._queues.values():
            queue.dispatcher.clock_jumps = self._clock_watch.jumps
        self._context.changed.set()
