"""Cancels a dispatch that takes too long, and abandons a handler that ignores that.

An abandoned attempt is settled as Unknown, and its slot goes to another message.
"""

import asyncio
from dataclasses import dataclass

from redrive.relay.backpressure.gate import DestinationGate
from redrive.relay.context import RelayContext
from redrive.relay.dispatching.destination_queue import DestinationQueue, Slot
from redrive.relay.dispatching.outcomes import Outcomes, cut_off
from redrive.relay.dispatching.queues import DestinationQueues
from redrive.relay.dispatching.slots import Slots

TICK_SECONDS = 0.05
ABANDON_SECONDS = 5.0  # a handler that ignores its cancellation for this long is left to itself


@dataclass(eq=False)
class Deadlines:
    context: RelayContext
    queues: DestinationQueues
    slots: Slots
    gate: DestinationGate
    outcomes: Outcomes

    async def run(self) -> None:
        while True:
            await self.context.clock.sleep(TICK_SECONDS)
            now = self.context.clock.monotonic()
            for queue in self.queues.values():
                for slot in queue.overdue(now):
                    self._end_overdue(queue, slot, now)
            self.gate.lift_rests()

    def _end_overdue(self, queue: DestinationQueue, slot: Slot, now: float) -> None:
        """Cancel once, then abandon."""
        assert slot.task is not None
        if slot.cut is None:
            slot.cut = "TIMEOUT"
            slot.deadline = now + ABANDON_SECONDS
            slot.task.cancel()
            return
        self._abandon(queue, slot)

    def _abandon(self, queue: DestinationQueue, slot: Slot) -> None:
        slot.abandoned = True
        slot.deadline = None
        if slot.claim is not None:
            outcome = cut_off(queue, slot, slot.claim)
            self.outcomes.settle(queue, outcome, may_run_on=True)
            queue.end(slot.claim, self.context.clock.monotonic(), outcome=outcome)
        self.slots.free(queue, slot)
        self.slots.fill(queue)  # what waited behind it

    async def end_slots(self, deadline: float) -> None:
        """Wait for what runs; cut off the rest, and abandon what ignores that."""
        tasks = [slot.task for queue in self.queues.values() for slot in queue.slots if slot.task is not None]
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=max(deadline - self.context.clock.monotonic(), 0))
        for queue in self.queues.values():
            for slot in list(queue.slots):
                if slot.task is not None and slot.task in late:
                    slot.cut = "CUT_OFF"
                    slot.task.cancel()
        if late:
            _, deaf = await asyncio.wait(late, timeout=ABANDON_SECONDS)
            for queue in self.queues.values():
                for slot in [slot for slot in queue.slots if slot.task in deaf]:
                    self._abandon(queue, slot)
