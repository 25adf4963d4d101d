"""Takes what was claimed, or handed over with a settlement, into the queues."""

from collections.abc import Sequence
from dataclasses import dataclass

from redrive.message import Attempt
from redrive.relay.backpressure.gate import DestinationGate
from redrive.relay.claiming.leases import Leases
from redrive.relay.context import RelayContext
from redrive.relay.dispatching.destination_queue import DestinationQueue
from redrive.relay.dispatching.queues import DestinationQueues
from redrive.relay.dispatching.slots import Slots


@dataclass(eq=False)
class Intake:
    context: RelayContext
    queues: DestinationQueues
    leases: Leases
    slots: Slots
    gate: DestinationGate

    def take(self, attempts: Sequence[Attempt], *, asked_at: float) -> None:
        """Into the queues only; `fill` begins them when the claim has been judged as a whole."""
        received_at = self.context.clock.monotonic()
        for attempt in attempts:
            queue = self.queues[attempt.destination]
            queue.waiting.append(self.leases.take(attempt, asked_at=asked_at, received_at=received_at))
            self._prepare_completion(attempt, queue)

    def take_handed_over(self, attempt: Attempt, *, asked_at: float, streak: int) -> None:
        queue = self.queues[attempt.destination]
        received_at = self.context.clock.monotonic()
        queue.waiting.append(self.leases.take(attempt, asked_at=asked_at, received_at=received_at, streak=streak))
        self._prepare_completion(attempt, queue)
        if queue.paused:  # while it was on its way
            _ = self.context.tasks.start(self.leases.hand_back(queue.take_waiting()))
        elif queue.keyed is not None:
            _ = self.context.tasks.start(self.sift(queue))
        self.slots.fill(queue)

    def may_take(self, destination: str) -> bool:
        """Whether the next message of a lane is welcome: not while a relay stops, or runs suspects one by one."""
        queue, context = self.queues[destination], self.context
        stops = context.stopping.is_set() or context.suspects_only
        return not (stops or queue.is_closed or self.queues.lacks_threads(queue))

    async def sift(self, queue: DestinationQueue) -> None:
        """Puts off what its limit keys do not let through; the rest begins."""
        if queue.keyed is not None:
            await self.gate.keys.sift(queue)
            self.slots.fill(queue)

    def _prepare_completion(self, attempt: Attempt, queue: DestinationQueue) -> None:
        attempt.completion.worker = self.context.worker
        attempt.completion.rules = queue.destination.rules
        attempt.completion.staged = queue.destination.staged
