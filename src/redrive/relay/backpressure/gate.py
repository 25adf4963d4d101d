"""What stops a destination in one relay: a person's pause, bugs, a Retry-After, its breaker (G-10, G-25).

This relay stops at once and writes it to the database; other relays read it with their heartbeat. What waits is handed
back unspent. A relay that does not know yet gets no claims: the database gives none out. SQL: `destination.sql`,
`breaker.sql`.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from redrive.answers import Advance, Delivered
from redrive.ports import DestinationState, Opened, Outcome
from redrive.relay.backpressure import breaker, bug_breaker
from redrive.relay.backpressure.limit_keys import LimitKeys
from redrive.relay.claiming.leases import Leases
from redrive.relay.context import RelayContext
from redrive.relay.dispatching.destination_queue import DestinationQueue
from redrive.relay.dispatching.queues import DestinationQueues
from redrive.relay.dispatching.slots import Slots

RETRY_AFTER: Final = "retry_after"


class DestinationGate:
    """keys: the same for single limit keys."""

    def __init__(self, context: RelayContext, queues: DestinationQueues, leases: Leases, slots: Slots) -> None:
        self._context = context
        self._store = context.store
        self._clock = context.clock
        self._events = context.events
        self._queues = queues
        self._leases = leases
        self._slots = slots
        self.keys = LimitKeys(context, queues, leases, slots)

    def note_outcome(self, queue: DestinationQueue, outcome: Outcome) -> None:
        """What an outcome means for the other messages of its limit key, or of its destination."""
        key = self.keys.key_of(queue, outcome.attempt)
        if key is not None:
            if self.keys.note_outcome(queue, key, outcome):
                self._stop_for_bugs(queue)
            return
        answer = outcome.settlement.answer
        if isinstance(answer, Delivered | Advance):
            queue.bugs.saw_success()
        elif getattr(answer, "bug", False) and queue.bugs.saw_bug(outcome.attempt.id, getattr(answer, "code", "")):
            self._stop_for_bugs(queue)
        elif outcome.settlement.pause_seconds > 0 and self._must_rest(queue, outcome.settlement.pause_seconds):
            _ = self._context.tasks.start(self._rest(queue, outcome.settlement.pause_seconds))
        if queue.count is not None and not outcome.attempt.probe and not queue.is_stale(outcome.attempt):
            self._count(queue, queue.count, outcome)

    # bugs and Retry-After: pauses

    def _stop_for_bugs(self, queue: DestinationQueue) -> None:
        self._stop(queue, until=None)
        _ = self._context.tasks.start(self._pause_for_bugs(queue))

    async def _pause_for_bugs(self, queue: DestinationQueue) -> None:
        name = queue.destination.name
        actor, reason = self._context.actor, bug_breaker.REASON
        await self._context.step("pause", lambda: self._store.pause(name, actor=actor, reason=reason), destination=name)
        self._events.emit("destination.paused", destination=name, reason=reason)
        queue.bugs.paused()
        await self._stopped(queue)

    def _must_rest(self, queue: DestinationQueue, seconds: float) -> bool:
        """Unless it rests for as long already; then it stops at once."""
        until = self._clock.monotonic() + seconds
        if queue.paused and (queue.paused_until is None or queue.paused_until >= until):
            return False
        self._stop(queue, until=until)
        return True

    async def _rest(self, queue: DestinationQueue, seconds: float) -> None:
        name, actor = queue.destination.name, self._context.actor
        left = await self._context.step(
            "pause_until", lambda: self._store.pause_until(name, actor=actor, seconds=seconds), destination=name
        )
        queue.paused_until = None if left is None else self._clock.monotonic() + left
        reason = None if left is None else RETRY_AFTER  # a person was quicker
        self._events.emit("destination.paused", destination=name, reason=reason, seconds=left)
        await self._stopped(queue)

    def _stop(self, queue: DestinationQueue, *, until: float | None) -> None:
        """At once: no slot takes another one. pausing: the database does not know yet."""
        queue.paused = True
        queue.paused_until = until
        queue.pausing += 1

    async def _stopped(self, queue: DestinationQueue) -> None:
        queue.pausing -= 1
        await self._leases.hand_back(queue.take_waiting())

    def lift_rests(self) -> None:
        """A rest that is over need not wait for the next heartbeat."""
        self.keys.tick()
        now = self._clock.monotonic()
        for queue in self._queues.values():
            if queue.paused_until is not None and queue.paused_until <= now and not queue.pausing:
                self._resume(queue)

    def _resume(self, queue: DestinationQueue) -> None:
        queue.paused, queue.paused_until = False, None
        self._events.emit("destination.resumed", destination=queue.destination.name)
        self._slots.refill(queue)

    # the breaker

    def _count(self, queue: DestinationQueue, count: breaker.Count, outcome: Outcome) -> None:
        answered = breaker.answered(outcome.settlement.answer, queue.breaker_rules)
        if answered is not None and count.saw(answered=answered) and not queue.opening:
            queue.opening = True
            _ = self._context.tasks.start(self._open(queue, outcome))

    async def report(self, queue: DestinationQueue, outcome: Outcome) -> None:
        """How the probe ended; before it is settled, because until then no other one is let out."""
        seconds = outcome.settlement.pause_seconds
        if seconds > 0 and self._must_rest(queue, seconds):
            await self._rest(queue, seconds)  # it was answered: a ramp follows this too
            return
        answered = breaker.answered(outcome.settlement.answer, queue.breaker_rules)
        if answered:
            await self._close(queue, outcome)
        elif answered is not None:
            await self._open(queue, outcome)

    async def _open(self, queue: DestinationQueue, outcome: Outcome) -> None:
        name, evidence = queue.destination.name, breaker.evidence(outcome, queue.breaker_rules)
        opened: Opened = await self._context.step(
            "open_breaker", lambda: self._store.open_breaker(name, **evidence), destination=name
        )
        if opened.opened:
            self._events.emit("breaker.opened", destination=name, code=evidence["code"], seconds=opened.open_seconds)
        queue.opening = False
        if queue.count is not None:
            queue.count.start_again()
        await self._opened(queue, opened.opened_at)

    async def _close(self, queue: DestinationQueue, outcome: Outcome) -> None:
        name, at = queue.destination.name, outcome.attempt.claimed_at
        closed = await self._context.step(
            "close_breaker", lambda: self._store.close_breaker(name, claimed_at=at), destination=name
        )
        if closed:
            self._events.emit("breaker.recovered", destination=name)

    async def _opened(self, queue: DestinationQueue, at: datetime | None) -> None:
        """What was claimed before is not sent any more; what is claimed later was let out on purpose."""
        if at is not None and (queue.opened_at is None or queue.opened_at < at):
            queue.opened_at = at
        await self._leases.hand_back(queue.take_stale())
        self._slots.refill(queue)

    # what others say

    async def apply(self, states: Iterable[DestinationState]) -> None:
        for state in states:
            queue = self._queues.get(state.name)
            if queue is None:
                continue
            if not queue.pausing:
                await self._apply_pause(queue, state)
            if state.breaker_opened_at is not None and state.breaker_opened_at != queue.opened_at:
                await self._opened(queue, state.breaker_opened_at)

    async def _apply_pause(self, queue: DestinationQueue, state: DestinationState) -> None:
        left = state.pause_seconds
        if not state.paused:
            if queue.paused:
                self._resume(queue)
            return
        is_news = not queue.paused
        queue.paused, queue.paused_until = True, None if left is None else self._clock.monotonic() + left
        if is_news:
            self._events.emit("destination.paused", destination=state.name, reason=state.pause_reason, seconds=left)
            await self._leases.hand_back(queue.take_waiting())
