"""The loop that claims: asks in one statement for what all destinations have room for, and rests when there is nothing.

Claims that are dated where the database's clock cannot be, or that came from a database which was not asked what it
knows, are handed back and not begun.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from redrive.ports import Claimed, ClaimRequest, TransientFailure
from redrive.relay.claiming.capacity import claim_requests, looked_everywhere
from redrive.relay.claiming.findings import note_findings
from redrive.relay.claiming.intake import Intake
from redrive.relay.claiming.leases import Leases
from redrive.relay.claiming.lost_replies import LostReplies
from redrive.relay.claiming.low_water import LowWater
from redrive.relay.clock_watch import ClockWatch
from redrive.relay.context import UNREACHABLE_SECONDS, RelayContext
from redrive.relay.crash.money_check import MoneyCheck
from redrive.relay.dispatching.queues import DestinationQueues
from redrive.relay.dispatching.runner import YIELD_EVERY
from redrive.relay.dispatching.slots import Slots
from redrive.relay.settling.settle import Settler
from redrive.relay.tasks import until_set
from redrive.relay.wakeup.doorbell import Doorbell

UNSETTLED_MAX = 4000
TURN_SECONDS = 10.0  # for which one process runs suspects of a destination; then others have their turn


@dataclass(eq=False)
class Claimer:
    context: RelayContext
    queues: DestinationQueues
    leases: Leases
    slots: Slots
    intake: Intake
    settler: Settler
    money: MoneyCheck
    lost_replies: LostReplies
    low_water: LowWater
    doorbell: Doorbell
    clock_watch: ClockWatch | None

    def __post_init__(self) -> None:
        self._clock = self.context.clock
        self._events = self.context.events
        self._said_waiting = False
        if self.clock_watch is not None:
            self.clock_watch.on_jump = self._clock_jumped

    async def run(self) -> None:
        """Until a stop; with suspects only, until none is left or the turn is over."""
        turn_ends = self._clock.monotonic() + TURN_SECONDS
        while not self.context.stopping.is_set():
            if self.context.suspects_only and self._has_had_its_turn(turn_ends):
                return
            await self.lost_replies.hand_back()
            requests = self._requests()
            self._events.emit("relay.looked", worker=self.context.worker)
            if not requests:
                await until_set(self.context.changed, self._rest_seconds())
                continue
            claimed = await self._claim(requests)
            await self._announce_idle()
            if claimed is None:
                await until_set(self.context.changed, UNREACHABLE_SECONDS)
            elif claimed.found_something:
                if len(claimed.attempts) < YIELD_EVERY:
                    await asyncio.sleep(0)  # a few begin before anything else is asked for
            elif self.context.suspects_only:
                return
            elif all(looked_everywhere(self.queues[request.destination].capacity) for request in requests):
                self._events.emit("relay.idle", worker=self.context.worker)

    def _has_had_its_turn(self, turn_ends: float) -> bool:
        """Whether to run no further suspect. What is claimed is settled first, however long that takes."""
        if self.leases.claims:
            if not self._said_waiting and (self.settler.busy or self.leases.handing_back):
                self._said_waiting = True
                self._events.emit("suspects.waiting", worker=self.context.worker)
            return False
        few_threads = any(queue.dispatcher.has_few_threads() for queue in self.queues.values())  # they end with it
        return self._said_waiting or few_threads or self._clock.monotonic() >= turn_ends

    def _requests(self) -> list[ClaimRequest]:
        self.context.changed.clear()
        self.money.distrust_new_connections()
        if self.settler.behind > UNSETTLED_MAX or (self.context.suspects_only and self.leases.claims):
            return []
        if self.clock_watch is not None and self.clock_watch.distrusted:
            return []  # until the next look at the clock
        now = self._clock.monotonic()
        limits = self.context.limits
        capacities = [
            queue.measure(now, horizon_seconds=limits.horizon_seconds)
            for queue in self.queues.values()
            if not queue.is_closed and queue.poll.is_due(now)
        ]
        for capacity in capacities:
            capacity.busy = self.settler.busy_of(capacity.destination)
            if capacity.only_begun:  # what is sent and not yet settled would be in doubt after a crash too
                capacity.running = self.leases.count_of(capacity.destination) - capacity.waiting
        return claim_requests(
            capacities,
            claim_max=limits.claim_max,
            horizon_seconds=limits.horizon_seconds,
            free_slots=self.slots.free_count,
        )

    def _rest_seconds(self) -> float:
        """Until the next poll. Freed slots wake the loop themselves."""
        now = self._clock.monotonic()
        polls = [queue.poll.look_at - now for queue in self.queues.values() if not queue.poll.is_due(now)]
        return min([self.context.limits.poll_seconds, *polls])

    async def _claim(self, requests: Sequence[ClaimRequest]) -> Claimed | None:
        sent_at = self._clock.monotonic()
        asked_at = 0.0 if self.clock_watch is None else self.clock_watch.elapsed()
        try:
            claimed = await self._claim_from_store(requests)
        except TransientFailure:
            self._events.emit("relay.unreachable", during="claim", tries=0)
            self.lost_replies.note()
            return None
        if self._dated_by_a_jump(claimed, sent_at=asked_at):
            self.context.beat_asked.set()
            await self.leases.hand_back_fences([attempt.fence for attempt in claimed.attempts])
            return None
        self.money.distrust_new_connections()  # the claim itself may have made one: then nothing of it is sent
        self.intake.take(claimed.attempts, asked_at=sent_at)
        now = self._clock.monotonic()
        note_findings(self.queues, claimed, requests, self.doorbell, asked_at=sent_at, now=now)
        await self._begin({attempt.destination: None for attempt in claimed.attempts}, asked_at=sent_at)
        return claimed

    async def _begin(self, destinations: dict[str, None], *, asked_at: float) -> None:
        for name in destinations:
            self.slots.fill(self.queues[name])
        for name in destinations:
            await self.intake.sift(self.queues[name])
        for queue in self.queues.values():
            if queue.waiting and self.queues.lacks_threads(queue):
                queue.poll.held_back(self._clock.monotonic(), found=False, asked_at=asked_at)
                await self.leases.hand_back(queue.take_waiting(), suspect=True)
            elif queue.waiting:  # paused, distrusted, or its breaker opened, while the claim was on its way
                is_stopped = queue.paused or queue.unwitnessed
                await self.leases.hand_back(queue.take_waiting() if is_stopped else queue.take_stale())

    async def _claim_from_store(self, requests: Sequence[ClaimRequest]) -> Claimed:
        store, worker, lease_seconds = self.context.store, self.context.worker, self.context.limits.lease_seconds
        if self.context.suspects_only:
            with self._events.step("claim_suspect", worker=worker) as added:
                names = [name for name, queue in self.queues.items() if not queue.unwitnessed]
                claimed = await store.claim_suspect(worker, names, lease_seconds=lease_seconds)
                added.update(count=len(claimed.attempts), gone=claimed.gone)
        else:
            with self._events.step("claim", worker=worker) as added:
                claimed = await store.claim(worker, self.low_water.marked(requests), lease_seconds=lease_seconds)
                counts = Counter(attempt.destination for attempt in claimed.attempts)
                added.update(count=counts.total(), counts=counts, expired=claimed.expired, gone=claimed.gone)
        return claimed

    def _dated_by_a_jump(self, claimed: Claimed, *, sent_at: float) -> bool:
        """Dated where the database's clock cannot be: nothing of it may begin."""
        if self.clock_watch is None or not claimed.attempts:
            return False
        at = claimed.attempts[0].claimed_at
        return not self.clock_watch.trusts(at, sent=sent_at, received=self.clock_watch.elapsed())

    def _clock_jumped(self) -> None:
        """Marks are times of the old clock, and what waits may have become due."""
        self.low_water.forget()
        self.queues.poll_now()

    async def _announce_idle(self) -> None:
        """Let producers ring for what has run dry, and poll it once more: what came before did not ring."""
        dry = [name for name, queue in self.queues.items() if queue.idleness.is_dry and not queue.is_closed]
        for name in await self.doorbell.announce_idle(dry):
            self.queues[name].poll.make_due(self._clock.monotonic())
