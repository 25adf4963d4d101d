"""One slot: takes the next claim of its destination, dispatches it, and passes on its outcome.

Before the first byte it checks that the claim is still ours and the message not cancelled; money is written down
outside the database first.
"""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass

from redrive.ports import NotBegun, Outcome
from redrive.relay.backpressure.gate import DestinationGate
from redrive.relay.claiming.claim import Claim
from redrive.relay.claiming.claim_checks import ClaimChecks
from redrive.relay.claiming.leases import Leases
from redrive.relay.context import RelayContext
from redrive.relay.crash.money_check import MoneyCheck
from redrive.relay.dispatching.destination_queue import DestinationQueue, Slot
from redrive.relay.dispatching.outcomes import Outcomes, cut_off, unknown
from redrive.relay.dispatching.queues import DestinationQueues
from redrive.relay.dispatching.slots import Slots

YIELD_EVERY = 8  # messages that one slot runs before it lets others have the event loop


@dataclass(eq=False)
class ClaimRunner:
    context: RelayContext
    queues: DestinationQueues
    leases: Leases
    slots: Slots
    gate: DestinationGate
    checks: ClaimChecks
    money: MoneyCheck
    outcomes: Outcomes

    def __post_init__(self) -> None:
        self._clock = self.context.clock
        self._events = self.context.events

    async def work(self, queue: DestinationQueue, slot: Slot) -> None:
        """Until nothing waits, or another destination gets the slot."""
        done = 0
        checked = False  # a moment ago, however long it took: so one begins after each check
        try:
            while not self.context.stopping.is_set() and not queue.is_closed and not slot.abandoned:
                first = queue.peek(self._clock.monotonic())
                if first is None:
                    break
                if not checked and self.checks.is_due(first):
                    checked = await self.checks.check_waiting()
                    continue
                self.checks.begin_in_time(first)
                checked = False
                claim = queue.take(first, self._clock.monotonic())
                if not queue.waiting:
                    self.context.changed.set()  # there is room again, though nothing has ended
                if not await self._begin(queue, slot, claim):
                    continue
                done += 1
                its_turn = done % YIELD_EVERY == 0 or not queue.is_quick()
                if its_turn and self.slots.must_pass_on(queue):
                    return
                if done % YIELD_EVERY == 0:
                    if 2 * len(queue.waiting) <= self.context.limits.claim_max:
                        self.context.changed.set()  # the next claim can be on its way while this one is worked off
                    await asyncio.sleep(0)
        finally:
            if not slot.abandoned:
                self.slots.free(queue, slot)

    async def _begin(self, queue: DestinationQueue, slot: Slot, claim: Claim) -> bool:
        """False: handed back, because of no thread, a short lease, or a destination or limit key that is down."""
        try:
            if self.queues.lacks_threads(queue):
                await self.leases.hand_back([claim], suspect=True)
                return False
            if self.leases.is_short(claim) or queue.is_stale(claim.attempt):
                await self.leases.hand_back([claim])
                return False
            if claim.limit_key is not None and not await self.gate.keys.may_go(queue, claim):
                return False
            await self._dispatch(queue, slot, claim)
            return True
        finally:
            queue.end(claim, self._clock.monotonic())

    async def _dispatch(self, queue: DestinationQueue, slot: Slot, claim: Claim) -> None:
        began = self._clock.monotonic()
        slot.claim = claim
        slot.began = began
        slot.cut = None
        slot.asking = False
        slot.deadline = began + queue.deadline_seconds(claim)
        try:
            run = self._dispatch_with_event if self._events.wants_step("dispatch") else self._dispatch_claim
            outcome: Outcome | None = await run(queue, slot, claim)
        except asyncio.CancelledError:
            outcome = None if slot.asking else cut_off(queue, slot, claim)
        except NotBegun:
            outcome = None
        except Exception:  # of a subscriber, or our own: the claim must end all the same
            outcome = _interrupted(queue, slot, claim)
        slot.deadline = None
        slot.claim = None
        was_cut = _forget_cancellation(slot)
        if slot.abandoned:
            attempt = claim.attempt
            about = {"id": attempt.id, "destination": attempt.destination, "tenant": attempt.tenant, "key": attempt.key}
            self._events.emit("message.refused", **about, attempt=attempt.number)
            return
        now = self._clock.monotonic()
        queue.capacity.note_latency(now - began)
        queue.end(claim, now, outcome=outcome, began=began)
        if outcome is not None and claim.attempt.probe:
            await self.gate.report(queue, outcome)
        if outcome is not None and claim.probe:
            await self.gate.keys.report(queue, claim, outcome)
        if outcome is None:
            await self.leases.hand_back([claim])
        elif claim.attempt.completion.attempted:
            await self.outcomes.after_complete(queue, slot, claim, outcome)
        else:
            self.outcomes.settle(queue, outcome, may_run_on=was_cut)

    async def _dispatch_with_event(self, queue: DestinationQueue, slot: Slot, claim: Claim) -> Outcome:
        attempt = claim.attempt
        with self._events.step("dispatch", id=attempt.id, destination=attempt.destination, attempt=attempt.number):
            return await self._dispatch_claim(queue, slot, claim)

    def _dispatch_claim(self, queue: DestinationQueue, slot: Slot, claim: Claim) -> Awaitable[Outcome]:
        return queue.dispatcher.dispatch(
            claim.attempt, claimed_at=claim.claimed_at, may_send=lambda: self._may_send(queue, slot, claim)
        )

    def _may_send(self, queue: DestinationQueue, slot: Slot, claim: Claim) -> bool | Awaitable[bool]:
        """An abandoned lookup must not send afterwards."""
        if slot.abandoned or claim.outdated or self.leases.is_short(claim):
            return False
        if self.checks.is_due(claim):
            return self._asked_and_may_send(queue, slot, claim)
        return self._noted(queue, slot, claim)

    async def _asked_and_may_send(self, queue: DestinationQueue, slot: Slot, claim: Claim) -> bool:
        slot.asking = True
        allowed = await self.checks.may_still_be_sent(claim)
        slot.asking = False
        return allowed and not (slot.abandoned or self.leases.is_short(claim)) and self._noted(queue, slot, claim)

    def _noted(self, queue: DestinationQueue, slot: Slot, claim: Claim) -> bool:
        """Always true. Money is remembered outside the database; from here on the send has its own timeout."""
        if queue.steps_before(claim) and slot.deadline is not None and slot.cut is None:
            slot.deadline = min(slot.deadline, self._clock.monotonic() + queue.destination.timeout_seconds)
        self.money.note(queue, claim)
        return True


def _interrupted(queue: DestinationQueue, slot: Slot, claim: Claim) -> Outcome | None:
    """None: an answer is kept already, so the claim is handed back and never sent."""
    return None if claim.attempt.kept_answer is not None else unknown(queue, slot, claim, "INTERRUPTED")


def _forget_cancellation(slot: Slot) -> bool:
    """True if there was one."""
    if slot.cut is None or slot.task is None:
        return False
    slot.task.uncancel()
    return True
