"""Settles the outcome of one attempt, and counts it for its destination."""

from dataclasses import dataclass, replace

from redrive.answers import Delivered
from redrive.policy import SettlementKind
from redrive.ports import Outcome
from redrive.relay.backpressure.gate import DestinationGate
from redrive.relay.claiming.claim import Claim
from redrive.relay.claiming.leases import Leases
from redrive.relay.context import RelayContext
from redrive.relay.dispatching.destination_queue import DestinationQueue, Slot
from redrive.relay.dispatching.queues import DestinationQueues
from redrive.relay.settling.facts import tell
from redrive.relay.settling.settle import Settler


@dataclass(eq=False)
class Outcomes:
    context: RelayContext
    queues: DestinationQueues
    leases: Leases
    gate: DestinationGate
    settler: Settler

    def settle(self, queue: DestinationQueue, outcome: Outcome, *, may_run_on: bool = False) -> None:
        """may_run_on: the handler (a thread, say) does not know that it is over, and may still call `complete`."""
        completing = outcome.attempt.completion.attempted
        if self.context.has_children and outcome.settlement.kind is SettlementKind.RETRY:
            outcome = replace(outcome, suspect=queue.dispatcher.needs_own_process(outcome.attempt))
        record = None if completing else queue.destination.record
        single = self.settler.add(outcome, record, singly=completing or may_run_on)
        if single is not None:
            queue.settling += 1
            single.add_done_callback(lambda _: self._settled_singly(queue))
        self.gate.note_outcome(queue, outcome)

    def _settled_singly(self, queue: DestinationQueue) -> None:
        queue.settling -= 1
        self.context.changed.set()

    async def after_complete(self, queue: DestinationQueue, slot: Slot, claim: Claim, outcome: Outcome) -> None:
        """The handler settled in its own transaction. If the lease is still there, that was rolled back."""
        store = self.context.store
        if await self.context.step("is_leased", lambda: store.is_leased(claim.fence), id=claim.attempt.id):
            self.settle(queue, unknown(queue, slot, claim, "COMPLETE_ROLLED_BACK"))
            return
        self.leases.let_go([claim.fence])
        if claim.attempt.completion.outcome is not None:
            tell(self.context.events, claim.attempt.completion.outcome)
        if claim.attempt.sequence is not None:
            self.queues.poll_now()  # its lane goes on
        if isinstance(outcome.settlement.answer, Delivered):
            self.gate.note_outcome(queue, outcome)


def cut_off(queue: DestinationQueue, slot: Slot, claim: Claim) -> Outcome:
    return unknown(queue, slot, claim, slot.cut or "CANCELLED")


def unknown(queue: DestinationQueue, slot: Slot, claim: Claim, code: str) -> Outcome:
    return queue.dispatcher.cut_off(claim.attempt, code, claimed_at=claim.claimed_at, began=slot.began)
