"""One relay: the path of a message from claim to settlement, built from its parts and run until it stops.

`claiming/claimer.py` claims what there is room for into queues; a slot (`dispatching/runner.py`) takes a claim, sends,
has an outcome; `settling/settle.py` writes outcomes in bulk or one by one. Beside that, leases are renewed, the
heartbeat is sent, deadlines are kept. Any part that fails ends the relay. `stop.py` stops it (G-09). With
`suspects_only` the same parts run messages that came back from a crash, one at a time (G-18).
"""

import asyncio
from collections.abc import Mapping
from random import Random

from redrive.app import Destination
from redrive.events import Events
from redrive.ports import Clock, RelayInfo, Store
from redrive.relay.backpressure.gate import DestinationGate
from redrive.relay.claiming.claim_checks import ClaimChecks
from redrive.relay.claiming.claimer import Claimer
from redrive.relay.claiming.intake import Intake
from redrive.relay.claiming.leases import Leases
from redrive.relay.claiming.lost_replies import LostReplies
from redrive.relay.claiming.low_water import LowWater
from redrive.relay.clock_watch import ClockWatch
from redrive.relay.context import RelayContext
from redrive.relay.crash.money_check import MoneyCheck
from redrive.relay.crash.witness import Witness
from redrive.relay.dispatching.deadlines import Deadlines
from redrive.relay.dispatching.outcomes import Outcomes
from redrive.relay.dispatching.queues import DestinationQueues
from redrive.relay.dispatching.runner import ClaimRunner
from redrive.relay.dispatching.slots import Slots
from redrive.relay.heartbeat import Heartbeat
from redrive.relay.settling.hand_over import HandOvers
from redrive.relay.settling.settle import Settler
from redrive.relay.stop import Stop
from redrive.relay.tasks import end
from redrive.relay.wakeup.doorbell import Doorbell
from redrive.relay.wakeup.listening import OpenListenConnection
from redrive.settings import RelayLimits


class Relay:
    """Runs until `stop()` (or, with `suspects_only`, until no suspect is left or its turn is over)."""

    def __init__(
        self,
        store: Store,
        destinations: Mapping[str, Destination],
        *,
        info: RelayInfo,
        limits: RelayLimits,
        clock: Clock,
        random: Random,
        events: Events,
        open_listen_connection: OpenListenConnection | None = None,
        witness: Witness | None = None,
        has_children: bool = False,
        clock_watch: ClockWatch | None = None,
    ) -> None:
        self._context = context = RelayContext(
            store=store, info=info, limits=limits, clock=clock, events=events, has_children=has_children
        )
        self._queues = queues = DestinationQueues(destinations, context, random=random)
        self._leases = leases = Leases(context, queues)
        slots = Slots(context)
        gate = DestinationGate(context, queues, leases, slots)
        self._money = MoneyCheck(context, queues, leases, slots=slots, witness=witness)
        lost_replies = LostReplies(context, leases, self._money)
        intake = Intake(context, queues, leases, slots=slots, gate=gate)
        hand_overs = HandOvers(context, queues, leases, intake=intake, lost_replies=lost_replies)
        self._settler = Settler(context, leases, hand_overs)
        outcomes = Outcomes(context, queues, leases, gate=gate, settler=self._settler)
        self._checks = ClaimChecks(context, queues, leases)
        slots.runner = ClaimRunner(
            context,
            queues,
            leases,
            slots=slots,
            gate=gate,
            checks=self._checks,
            money=self._money,
            outcomes=outcomes,
        )
        self._deadlines = Deadlines(context, queues, slots=slots, gate=gate, outcomes=outcomes)
        self._doorbell = Doorbell(context, open_listen_connection, wake=queues.rung)
        self._low_water = LowWater(store, destinations, clock=clock, events=events, on_missed=queues.poll_now)
        self._heartbeat = Heartbeat(
            context, queues, gate=gate, money=self._money, doorbell=self._doorbell, clock_watch=clock_watch
        )
        self._clock_watch = clock_watch
        self._claimer = Claimer(
            context,
            queues,
            leases,
            slots=slots,
            intake=intake,
            settler=self._settler,
            money=self._money,
            lost_replies=lost_replies,
            low_water=self._low_water,
            doorbell=self._doorbell,
            clock_watch=clock_watch,
        )
        self._stop = Stop(
            context,
            queues,
            leases,
            deadlines=self._deadlines,
            settler=self._settler,
            lost_replies=lost_replies,
            heartbeat=self._heartbeat,
        )

    async def run(self) -> None:
        context = self._context
        if not await self._heartbeat.start():
            return
        context.events.emit("relay.started", worker=context.worker, destinations=list(self._queues))
        beside = [
            asyncio.create_task(work)
            for work in (
                self._settler.run(),
                self._leases.renewing(),
                self._deadlines.run(),
                self._heartbeat.run(),
                self._doorbell.run(),
                *([] if context.suspects_only else [self._low_water.run()]),
                *([] if self._clock_watch is None or context.suspects_only else [self._clock_watch.redating()]),
                context.tasks.watching(),
            )
        ]
        claiming = asyncio.create_task(self._claimer.run())
        try:
            await asyncio.wait([claiming, *beside], return_when=asyncio.FIRST_COMPLETED)
            await self._stop.run(claiming)
            for task in (claiming, *beside):
                if task.done():
                    task.result()  # whatever ended early, other than by a stop, is a failure of the relay
        finally:
            context.stopping.set()
            await end([claiming, *beside])
            context.tasks.cancel()  # their outcomes could not be written any more
            self._money.close()
        context.events.emit("relay.stopped", worker=context.worker)

    def stop(self) -> None:
        """`run` returns when what runs has ended or was cut off."""
        if not self._context.stopping.is_set():
            self._context.events.emit("relay.stopping", worker=self._context.worker)
            self._context.stopping.set()
            self._context.changed.set()
