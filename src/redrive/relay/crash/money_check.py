"""No money is claimed or sent before the database was asked whether it knows what this relay has sent (P-10).

A restored database does not. It is asked at the start, with every heartbeat, and after every new connection, which may
lead to another database. `witness.py` remembers what was sent.
"""

from redrive.message import Fence
from redrive.relay.claiming.claim import Claim
from redrive.relay.claiming.leases import Leases
from redrive.relay.context import RelayContext
from redrive.relay.crash.witness import Witness
from redrive.relay.dispatching.destination_queue import DestinationQueue
from redrive.relay.dispatching.queues import DestinationQueues
from redrive.relay.dispatching.slots import Slots


class MoneyCheck:
    """witness: None = nothing is remembered or asked."""

    def __init__(
        self, context: RelayContext, queues: DestinationQueues, leases: Leases, *, slots: Slots, witness: Witness | None
    ) -> None:
        self._context = context
        self._queues = queues.money
        self._leases = leases
        self._slots = slots
        self._witness = witness
        for queue in self._queues:
            queue.unwitnessed = witness is not None

    async def ask(self) -> None:
        """Closes or opens the destinations that move money."""
        if self._witness is None or not self._queues:
            return
        events, worker = self._context.events, self._context.worker
        with events.step("witness", worker=worker) as added:
            found = await self._witness.ask()
            added.update(restored=found.restored, unknown=found.unknown, closed=len(found.closed))
        if found.restored:
            events.emit("relay.restored", worker=worker, unknown=found.unknown)
        for queue in self._queues:
            # A suspect is in doubt: it is asked about, or sent under its token, or held, whatever this database lacks.
            closed = found.restored or (queue.destination.name in found.closed and not self._context.suspects_only)
            if closed and not queue.unwitnessed:
                queue.unwitnessed = True
            elif not closed and queue.unwitnessed:
                queue.unwitnessed = False
                self._slots.refill(queue)
        if found.restored:  # what waits was claimed before the database was restored
            await self._leases.hand_back([claim for queue in self._queues for claim in queue.take_waiting()])

    def distrust_new_connections(self) -> None:
        """A new connection may lead to a restored database: ask before more money is claimed."""
        if self._witness is not None and self._queues and self._witness.must_ask:
            for queue in self._queues:
                queue.unwitnessed = True
            self._context.beat_asked.set()

    def note(self, queue: DestinationQueue, claim: Claim) -> None:
        """Right before the first byte."""
        if self._witness is not None and queue.destination.rules.money:
            self._witness.note(claim.attempt)

    def has_sent(self, fence: Fence) -> bool:
        return self._witness is not None and self._witness.has_sent(fence)

    def close(self) -> None:
        if self._witness is not None:
            self._witness.close()
