"""One relay process: the path of a message from claim to settlement.

    claim      rooms -> store.claim -> what waits in hand       (`_claiming`)
    dispatch   a slot takes from hand, sends, has an outcome    (`_working`)
    settle     outcomes -> store, in bulk or one by one         (`settle.Settler`)

Beside that path: leases are renewed, the relay says that it lives, deadlines are kept. Whatever of this fails ends the
relay. A stop claims nothing more, hands back what has not begun, lets the rest finish, and cuts off what does not
(G-09). With `suspects_only` the same loop runs messages that came back from a crash: one at a time, alone, until none
is left or its turn is over (G-18).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any
from uuid import UUID

from redrive.answers import Delivered
from redrive.app import Destination
from redrive.events import Events
from redrive.message import Attempt, Fence, WorkerId
from redrive.policy import SettlementKind
from redrive.ports import Claimed, ClaimRequest, Clock, NotBegun, Outcome, RelayInfo, Store, TransientFailure
from redrive.relay.backpressure.gate import DestinationGate
from redrive.relay.claiming.capacity import Capacity, claim_requests, looked_everywhere, note_quiet
from redrive.relay.claiming.claim import Claim
from redrive.relay.claiming.claim_checks import ClaimChecks
from redrive.relay.claiming.leases import Leases
from redrive.relay.claiming.low_water import LowWater
from redrive.relay.clock_watch import ClockWatch
from redrive.relay.crash.witness import Witness
from redrive.relay.dispatching.destination_queue import DestinationQueue, Slot
from redrive.relay.dispatching.dispatch import Dispatcher
from redrive.relay.settling.hand_over import HandOvers
from redrive.relay.settling.settle import Settler
from redrive.relay.tasks import Tasks, end
from redrive.relay.until_reachable import UNREACHABLE_SECONDS, UntilReachable
from redrive.relay.wakeup.doorbell import Doorbell
from redrive.relay.wakeup.listening import OpenListenConnection
from redrive.relay.wakeup.poll_schedule import PollSchedule
from redrive.settings import RelayLimits

TIMEKEEPER_SECONDS = 0.05
ABANDON_SECONDS = 5.0  # a handler that ignores its cancellation for this long is left to itself
STOP_SECONDS_MIN = 1.0  # even a stop that waits for nothing writes what it knows
YIELD_EVERY = 8  # messages that one slot runs before it lets others have the event loop
UNSETTLED_MAX = 4000
TURN_SECONDS = 10.0  # for which one process runs suspects of a destination; then others have their turn
LOOKS_PER_LEASE = 10  # how often a relay that lost a reply asks for the claims that it holds


class Relay:
    """Runs until `stop()` is called (or, with `suspects_only`, until no suspect is left or its turn is over).

    runs_apart: suspects are run by child processes, so that what holds on to its thread can be made one.
    """

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
        runs_apart: bool = False,
        clock_watch: ClockWatch | None = None,
    ) -> None:
        self._store = store
        self._runs_apart = runs_apart
        self._witness = witness
        self._clock_watch = clock_watch
        if clock_watch is not None:
            clock_watch.on_jump = self._clock_jumped
        self._info = info
        self._worker: WorkerId = info.worker
        self._limits = limits
        self._clock = clock
        self._events = events
        self._queues = {
            name: DestinationQueue(
                destination,
                Dispatcher(destination, clock=clock, random=random, events=events),
                _capacity(destination),
                PollSchedule(limits.poll_seconds),
            )
            for name, destination in destinations.items()
        }
        self._money = [queue for queue in self._queues.values() if queue.destination.rules.money]
        for queue in self._money:
            queue.unwitnessed = witness is not None
        self._changed = asyncio.Event()
        self._tasks = Tasks()
        self._leases = Leases(
            store,
            self._worker,
            limits=limits,
            clock=clock,
            events=events,
            tasks=self._tasks,
            on_let_go=self._let_go,
            on_lost=self._lost,
        )
        self._checks = ClaimChecks(
            store, self._worker, self._queues.values(), self._leases, clock=clock, events=events, tasks=self._tasks
        )
        self._until_reachable = UntilReachable(clock, events)
        self._doorbell = Doorbell(
            store,
            self._worker,
            open_listen_connection,
            poll_seconds=limits.poll_seconds,
            clock=clock,
            events=events,
            wake=self._rung,
        )
        self._settler = Settler(
            store,
            self._worker,
            clock=clock,
            events=events,
            record_timeout_seconds=limits.record_seconds,
            on_settled=self._leases.let_go,
            on_given_up=self._leases.give_up,
            on_reply_lost=self._reply_lost,
            lanes=HandOvers(
                self._leases,
                lease_seconds=limits.lease_seconds,
                may_take=self._may_take,
                take=self._take_handed_over,
                on_released=self._look_now,
            ),
        )
        self._low_water = LowWater(store, destinations, clock=clock, events=events, on_missed=self._look_now)
        self._stopping = asyncio.Event()
        self._beat_asked = asyncio.Event()
        self._slots_used = 0
        self._said_waiting = False
        self._unknown_until: float | None = None  # until when claims may turn up that this process does not know
        self._unknown_look_at = 0.0
        self._capped = [queue for queue in self._queues.values() if queue.destination.global_concurrency is not None]
        self._short: dict[DestinationQueue, None] = {}  # what waits while all slots of the process are in use, in turn
        self._gate = DestinationGate(
            store,
            self._queues,
            self._leases,
            actor=f"relay {info.name}",
            clock=clock,
            events=events,
            tasks=self._tasks,
            on_change=self._work_again,
            limits=limits,
        )

    async def run(self) -> None:
        """The whole life of a relay process."""
        if not await self._registered():
            return
        self._events.emit("relay.started", worker=self._worker, destinations=list(self._queues))
        beside = [
            asyncio.create_task(work)
            for work in (
                self._settler.run(),
                self._leases.renewing(),
                self._timekeeping(),
                self._beating(),
                self._doorbell.run(),
                *([] if self._info.suspects_only else [self._low_water.run()]),
                *([] if self._clock_watch is None or self._info.suspects_only else [self._clock_watch.redating()]),
                self._tasks.watching(),
            )
        ]
        claiming = asyncio.create_task(self._claiming())
        try:
            await asyncio.wait([claiming, *beside], return_when=asyncio.FIRST_COMPLETED)
            await self._finish(claiming)
            for task in (claiming, *beside):
                if task.done():
                    task.result()  # whatever ended early, other than by a stop, is a failure of the relay
        finally:
            self._stopping.set()
            await end([claiming, *beside])
            self._tasks.cancel()  # their outcomes would be written by nobody
            if self._witness is not None:
                self._witness.close()
        self._events.emit("relay.stopped", worker=self._worker)

    def stop(self) -> None:
        """Claim nothing more; `run` returns when what runs has ended or was cut off."""
        if not self._stopping.is_set():
            self._events.emit("relay.stopping", worker=self._worker)
            self._stopping.set()
            self._changed.set()

    async def _registered(self) -> bool:
        """False when it was stopped before the database could be reached."""
        while not self._stopping.is_set():
            try:
                await self._register()
                await self._watch_clock()
                await self._gate.keys.hear()
                await self._ask_witness()
                return True
            except TransientFailure:
                self._events.emit("relay.unreachable", during="verb", tries=0)
                self._changed.clear()
                await self._until_changed(UNREACHABLE_SECONDS)
        return False

    async def _register(self) -> None:
        with self._events.step("register", worker=self._worker):
            await self._store.register(self._info)

    async def _deregister(self) -> None:
        with self._events.step("deregister", worker=self._worker):
            await self._store.deregister(self._worker)

    async def _watch_clock(self) -> None:
        """Before anything follows from what the database's clock says (G-33)."""
        if self._clock_watch is None:
            return
        await self._clock_watch.look()
        for queue in self._queues.values():
            queue.dispatcher.clock_jumps = self._clock_watch.jumps
        self._changed.set()

    def _clock_jumped(self) -> None:
        """Marks are times of the clock as it was; and what waits may have become due."""
        self._low_water.forget()
        self._look_now()

    def _dated_by_a_jump(self, claimed: Claimed, *, sent_at: float) -> bool:
        """Whether these claims are dated where the database's clock cannot be: nothing of them is begun."""
        if self._clock_watch is None or not claimed.attempts:
            return False
        at = claimed.attempts[0].claimed_at
        return not self._clock_watch.saw(at, sent=sent_at, received=self._clock_watch.elapsed())

    async def _ask_witness(self) -> None:
        """Whether the database knows the money that this relay has sent; until it does, none is claimed or begun."""
        if self._witness is None or not self._money:
            return
        with self._events.step("witness", worker=self._worker) as added:
            found = await self._witness.ask()
            added.update(restored=found.restored, unknown=found.unknown, closed=len(found.closed))
        if found.restored:
            self._events.emit("relay.restored", worker=self._worker, unknown=found.unknown)
        for queue in self._money:
            # A suspect is in doubt: it is asked about, or sent under its token, or held, whatever this database lacks.
            closed = found.restored or (queue.destination.name in found.closed and not self._info.suspects_only)
            if closed and not queue.unwitnessed:
                queue.unwitnessed = True
            elif not closed and queue.unwitnessed:
                queue.unwitnessed = False
                self._work_again(queue)
        if found.restored:  # what waits was claimed in another life of the database
            await self._leases.hand_back([claim for queue in self._money for claim in queue.take_waiting()])

    def _distrust_new_connections(self) -> None:
        """A new connection may lead to a restored database: it is asked before any further money is claimed."""
        if self._witness is not None and self._money and self._witness.must_ask:
            for queue in self._money:
                queue.unwitnessed = True
            self._beat_asked.set()

    # claim

    async def _claiming(self) -> None:
        turn_ends = self._clock.monotonic() + TURN_SECONDS
        while not self._stopping.is_set():
            if self._info.suspects_only and self._has_had_its_turn(turn_ends):
                return
            await self._hand_back_unknown()
            asked = self._ask()
            self._events.emit("relay.looked", worker=self._worker)
            if not asked:
                await self._until_changed(self._rest_seconds())
                continue
            claimed = await self._claim(asked)
            await self._announce_idle()
            if claimed is None:
                await self._until_changed(UNREACHABLE_SECONDS)
            elif claimed.found_something:
                if len(claimed.attempts) < YIELD_EVERY:
                    await asyncio.sleep(0)  # a few begin before anything else is asked for
            elif self._info.suspects_only:
                return
            elif all(looked_everywhere(self._queues[room.destination].capacity) for room in asked):
                self._events.emit("relay.idle", worker=self._worker)

    def _has_had_its_turn(self, turn_ends: float) -> bool:
        """Whether to run no further suspect. What is in hand is settled first, however long that takes."""
        if self._leases.held:
            if not self._said_waiting and (self._settler.busy or self._leases.handing_back):
                self._said_waiting = True
                self._events.emit("suspects.waiting", worker=self._worker)
            return False
        few_threads = any(queue.dispatcher.has_few_threads() for queue in self._queues.values())  # they end with it
        return self._said_waiting or few_threads or self._clock.monotonic() >= turn_ends

    async def _announce_idle(self) -> None:
        """Let producers ring for what has run dry, and look there once more: nobody rang for what came before."""
        dry = [name for name, queue in self._queues.items() if queue.idleness.is_dry and not queue.held]
        for name in await self._doorbell.announce_idle(dry):
            self._queues[name].wake.call(self._clock.monotonic())

    def _rung(self) -> None:
        self._events.emit("relay.rung", worker=self._worker)
        if any(queue.paused for queue in self._queues.values()):
            self._beat_asked.set()  # one may have been resumed
        self._look_now()

    def _look_now(self) -> None:
        now = self._clock.monotonic()
        for queue in self._queues.values():
            queue.wake.call(now)
        self._changed.set()

    def _ask(self) -> list[ClaimRequest]:
        self._changed.clear()
        self._distrust_new_connections()
        unsettled = max(self._settler.behind, self._settler.busy)
        if unsettled > UNSETTLED_MAX or (self._info.suspects_only and self._leases.held):
            return []
        if self._clock_watch is not None and self._clock_watch.distrusted:
            return []  # until the next look at the clock
        now = self._clock.monotonic()
        horizon = self._limits.horizon_seconds
        capacities = [
            queue.measure(now, horizon_seconds=horizon)
            for queue in self._queues.values()
            if not queue.held and queue.wake.is_due(now)
        ]
        for capacity in capacities:
            if capacity.only_begun:  # what is sent and not yet settled would be in doubt after a crash too
                capacity.running = self._leases.count_of(capacity.destination) - capacity.waiting
        return claim_requests(
            capacities,
            claim_max=self._limits.claim_max,
            horizon_seconds=self._limits.horizon_seconds,
            free_slots=max(self._limits.concurrency - self._slots_used, 0),
        )

    def _rest_seconds(self) -> float:
        """Until the next look at a destination that had nothing; room that becomes free elsewhere comes of itself."""
        now = self._clock.monotonic()
        looks = [queue.wake.look_at - now for queue in self._queues.values() if not queue.wake.is_due(now)]
        return min([self._limits.poll_seconds, *looks])

    async def _claim(self, asked: Sequence[ClaimRequest]) -> Claimed | None:
        sent_at = self._clock.monotonic()
        asked_at = 0.0 if self._clock_watch is None else self._clock_watch.elapsed()
        try:
            claimed = await self._claim_from_store(asked)
        except TransientFailure:
            self._events.emit("relay.unreachable", during="claim", tries=0)
            self._reply_lost()
            return None
        if self._dated_by_a_jump(claimed, sent_at=asked_at):
            self._beat_asked.set()
            await self._leases.hand_back_unbegun([attempt.fence for attempt in claimed.attempts])
            return None
        self._distrust_new_connections()  # the claim itself may have made one: then nothing of it is sent
        self._take_in_hand(claimed, asked, sent_at)
        for name in {attempt.destination for attempt in claimed.attempts}:
            await self._sift(self._queues[name])
        for queue in self._queues.values():
            if queue.waiting and self._lacks_threads(queue):
                queue.wake.held_back(self._clock.monotonic(), found=False, asked_at=sent_at)
                await self._leases.hand_back(queue.take_waiting(), suspect=True)
            elif queue.waiting:  # paused, distrusted, or its breaker opened, while the claim was on its way
                is_closed = queue.paused or queue.unwitnessed
                await self._leases.hand_back(queue.take_waiting() if is_closed else queue.take_stale())
        return claimed

    async def _sift(self, queue: DestinationQueue) -> None:
        """What its limit keys hold back is put off; what may go begins."""
        if queue.keyed is not None:
            await self._gate.keys.sift(queue)
            self._fill_slots(queue)

    def _lacks_threads(self, queue: DestinationQueue) -> bool:
        """Handlers that never returned keep so many threads that a child process has to run what is claimed."""
        return self._runs_apart and not self._info.suspects_only and not queue.dispatcher.has_threads()

    async def _claim_from_store(self, asked: Sequence[ClaimRequest]) -> Claimed:
        lease_seconds = self._limits.lease_seconds
        if self._info.suspects_only:
            with self._events.step("claim_suspect", worker=self._worker) as added:
                names = [name for name, queue in self._queues.items() if not queue.unwitnessed]
                claimed = await self._store.claim_suspect(self._worker, names, lease_seconds=lease_seconds)
                added.update(count=len(claimed.attempts), gone=claimed.gone)
        else:
            with self._events.step("claim", worker=self._worker) as added:
                claimed = await self._store.claim(
                    self._worker, self._low_water.marked(asked), lease_seconds=lease_seconds
                )
                added.update(count=len(claimed.attempts), expired=claimed.expired, gone=claimed.gone)
        return claimed

    def _reply_lost(self) -> None:
        """The database may have claimed messages for this relay that it will never hear of."""
        now = self._clock.monotonic()
        self._unknown_until = now + self._limits.lease_seconds
        self._unknown_look_at = now

    async def _hand_back_unknown(self, *, at_once: bool = False) -> None:
        """After a lost reply: hand back the claims of ours that this process does not know, before they run out.

        Called while no claim is under way. A settle that is under way may have handed over what is not known yet: what
        is still unknown when that has ended was never begun. A lost statement may commit later than the first look, so
        the database is asked again for as long as a lease lasts. Money that was sent under such a claim was begun: the
        claim is back with a restored database, and runs out, so that the payment is in doubt.
        """
        now = self._clock.monotonic()
        if self._unknown_until is None or (now < self._unknown_look_at and not at_once):
            return
        try:
            held = await self._store.leases_of(self._worker)
        except TransientFailure:
            self._events.emit("relay.unreachable", during="verb", tries=0)
            self._unknown_look_at = self._clock.monotonic() + UNREACHABLE_SECONDS
            return
        unknown = [fence for fence in held if not self._leases.knows(fence)]
        await self._settler.handed_over()
        never_begun = [fence for fence in unknown if not (self._leases.knows(fence) or self._has_sent(fence))]
        await self._leases.hand_back_unknown(never_begun)
        self._unknown_look_at = now + self._limits.lease_seconds / LOOKS_PER_LEASE
        if now >= self._unknown_until:
            self._unknown_until = None

    def _has_sent(self, fence: Fence) -> bool:
        return self._witness is not None and self._witness.has_sent(fence)

    def _take_in_hand(self, claimed: Claimed, asked: Sequence[ClaimRequest], sent_at: float) -> None:
        received_at = self._clock.monotonic()
        taken: dict[str, int] = {}
        for attempt in claimed.attempts:
            queue = self._queues[attempt.destination]
            queue.waiting.append(self._leases.take(attempt, asked_at=sent_at, received_at=received_at))
            self._prepare_completion(attempt, queue)
            taken[attempt.destination] = taken.get(attempt.destination, 0) + 1
        self._note_levels(claimed, asked, sent_at)
        self._doorbell.looked(found=claimed.found_something)
        for name in taken:
            self._fill_slots(self._queues[name])

    def _prepare_completion(self, attempt: Attempt, queue: DestinationQueue) -> None:
        attempt.completion.worker = self._worker
        attempt.completion.rules = queue.destination.rules
        attempt.completion.staged = queue.destination.staged

    def _may_take(self, destination: str) -> bool:
        """Whether the next message of a lane is welcome: not where a relay stops, or runs suspects one by one."""
        queue = self._queues[destination]
        return not (self._stopping.is_set() or self._info.suspects_only or queue.held or self._lacks_threads(queue))

    def _take_handed_over(self, attempt: Attempt, asked_at: float, streak: int) -> None:
        queue = self._queues[attempt.destination]
        received_at = self._clock.monotonic()
        queue.waiting.append(self._leases.take(attempt, asked_at=asked_at, received_at=received_at, streak=streak))
        self._prepare_completion(attempt, queue)
        if queue.paused:  # while it was on its way
            _ = self._tasks.start(self._leases.hand_back(queue.take_waiting()))
        elif queue.keyed is not None:
            _ = self._tasks.start(self._sift(queue))
        self._fill_slots(queue)

    def _note_levels(self, claimed: Claimed, asked: Sequence[ClaimRequest], sent_at: float) -> None:
        levels: dict[str, dict[int, int]] = {}
        for attempt in claimed.attempts:
            counts = levels.setdefault(attempt.destination, {})
            counts[attempt.level] = counts.get(attempt.level, 0) + 1
        asked_of: dict[str, list[ClaimRequest]] = {}
        for room in asked:
            asked_of.setdefault(room.destination, []).append(room)
        now = self._clock.monotonic()
        for name, here in asked_of.items():
            queue = self._queues[name]
            if name in claimed.held_back:
                queue.wake.held_back(now, found=name in levels, asked_at=sent_at)
                queue.idleness.held_back()
                continue
            note_quiet(queue.capacity, here, levels.get(name, {}))
            if name in levels or claimed.expired or claimed.more:
                self._found(
                    queue, here, levels.get(name, {}), all_of_it=not (claimed.more or claimed.expired), asked_at=sent_at
                )
            elif looked_everywhere(queue.capacity):
                queue.wake.found_nothing(now, asked_at=sent_at)
                queue.idleness.found_nothing(now)

    def _found(
        self,
        queue: DestinationQueue,
        asked: Sequence[ClaimRequest],
        taken: Mapping[int, int],
        *,
        all_of_it: bool,
        asked_at: float,
    ) -> None:
        """More is looked for at once, unless there was no more and whoever brings the next one rings."""
        full = any(taken.get(room.level, 0) >= room.room for room in asked)
        now = self._clock.monotonic()
        queue.idleness.found(sum(taken.values()), now, full=full)
        if all_of_it and looked_everywhere(queue.capacity) and self._doorbell.rings_for(queue.destination.name):
            queue.wake.found_all(now, asked_at=asked_at)
        else:
            queue.wake.found_something()

    # dispatch

    def _fill_slots(self, queue: DestinationQueue) -> None:
        """Start as many slots as there is work and permission for; a running slot goes on by itself."""
        if self._stopping.is_set() or queue.held:
            return
        ready = queue.may_begin(self._clock.monotonic())
        wanted = min(queue.destination.concurrency, len(queue.slots) + ready)
        for _ in range(wanted - len(queue.slots)):
            if self._slots_used >= self._limits.concurrency:
                self._short.setdefault(queue)
                return
            self._slots_used += 1
            slot = Slot()
            queue.slots[slot] = None
            slot.task = self._tasks.start(self._working(queue, slot))
        self._short.pop(queue, None)

    async def _working(self, queue: DestinationQueue, slot: Slot) -> None:
        """Take from hand and dispatch, until nothing waits, or another destination is owed the slot."""
        done = 0
        checked = False  # a moment ago, however long it took: so one begins after each check
        try:
            while not self._stopping.is_set() and not queue.held and not slot.abandoned:
                first = queue.peek(self._clock.monotonic())
                if first is None:
                    break
                if not checked and self._checks.is_due(first):
                    checked = await self._checks.check_waiting()
                    continue
                self._checks.begin_in_time(first)
                checked = False
                claim = queue.take(first, self._clock.monotonic())
                if not queue.waiting:
                    self._changed.set()  # there is room again, though nothing has ended
                if not await self._begin(queue, slot, claim):
                    continue
                done += 1
                its_turn = done % YIELD_EVERY == 0 or not queue.is_quick()
                if self._short and its_turn and self._owes_slot(queue):
                    self._short.pop(queue, None)
                    self._short[queue] = None  # behind those that wait already
                    return
                if done % YIELD_EVERY == 0:
                    if 2 * len(queue.waiting) <= self._limits.claim_max:
                        self._changed.set()  # the next claim can be on its way while this one is worked off
                    await asyncio.sleep(0)
        finally:
            if not slot.abandoned:
                self._free(queue, slot)

    async def _begin(self, queue: DestinationQueue, slot: Slot, claim: Claim) -> bool:
        """False where it went back instead: no thread, too short a lease, or its destination or limit key is down."""
        try:
            if self._lacks_threads(queue):
                await self._leases.hand_back([claim], suspect=True)
                return False
            if self._leases.is_short(claim) or queue.is_stale(claim.attempt):
                await self._leases.hand_back([claim])
                return False
            if claim.limit_key is not None and not await self._gate.keys.may_go(queue, claim):
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
            outcome = None if slot.asking else self._cut_off(queue, slot, claim)
        except NotBegun:
            outcome = None
        except Exception:  # of a subscriber, or our own: the claim must not stay in hand for ever
            outcome = self._interrupted(queue, slot, claim)
        slot.deadline = None
        slot.claim = None
        was_cut = _forget_cancellation(slot)
        if slot.abandoned:
            attempt = claim.attempt
            self._events.emit("message.refused", id=attempt.id, destination=attempt.destination, attempt=attempt.number)
            return
        now = self._clock.monotonic()
        queue.capacity.saw_latency(now - began)
        queue.end(claim, now, outcome=outcome, began=began)
        if outcome is not None and claim.attempt.probe:
            await self._gate.report(queue, outcome)
        if outcome is not None and claim.probe:
            await self._gate.keys.report(queue, claim, outcome)
        if outcome is None:
            await self._leases.hand_back([claim])
        elif claim.attempt.completion.attempted:
            await self._after_complete(queue, slot, claim, outcome)
        else:
            self._finished(queue, outcome, may_run_on=was_cut)

    async def _dispatch_with_event(self, queue: DestinationQueue, slot: Slot, claim: Claim) -> Outcome:
        attempt = claim.attempt
        with self._events.step("dispatch", id=attempt.id, destination=attempt.destination, attempt=attempt.number):
            return await self._dispatch_claim(queue, slot, claim)

    def _dispatch_claim(self, queue: DestinationQueue, slot: Slot, claim: Claim) -> Awaitable[Outcome]:
        return queue.dispatcher.dispatch(
            claim.attempt, claimed_at=claim.claimed_at, may_send=lambda: self._may_send(queue, slot, claim)
        )

    def _may_send(self, queue: DestinationQueue, slot: Slot, claim: Claim) -> bool | Awaitable[bool]:
        """What was abandoned in its lookup is settled long since, and must not be sent when that ends at last."""
        if slot.abandoned or claim.outdated or self._leases.is_short(claim):
            return False
        if self._checks.is_due(claim):
            return self._asked_and_may_send(queue, slot, claim)
        return self._noted(queue, slot, claim)

    async def _asked_and_may_send(self, queue: DestinationQueue, slot: Slot, claim: Claim) -> bool:
        slot.asking = True
        allowed = await self._checks.may_still_be_sent(claim)
        slot.asking = False
        return allowed and not (slot.abandoned or self._leases.is_short(claim)) and self._noted(queue, slot, claim)

    def _noted(self, queue: DestinationQueue, slot: Slot, claim: Claim) -> bool:
        """Remembered outside the database before the first byte, if it moves money; always true.

        From here on the send has its timeout, whatever a lookup or a validation before it has left of theirs.
        """
        if queue.steps_before(claim) and slot.deadline is not None and slot.cut is None:
            slot.deadline = min(slot.deadline, self._clock.monotonic() + queue.destination.timeout_seconds)
        if self._witness is not None and queue.destination.rules.money:
            self._witness.note(claim.attempt)
        return True

    def _cut_off(self, queue: DestinationQueue, slot: Slot, claim: Claim) -> Outcome:
        """The send was cancelled: by us, with a reason, or by the handler itself. Either way nobody can tell."""
        return self._unknown(queue, slot, claim, slot.cut or "CANCELLED")

    def _interrupted(self, queue: DestinationQueue, slot: Slot, claim: Claim) -> Outcome | None:
        """An answer that is kept already stays kept: such a claim is handed back, and never sent."""
        return None if claim.attempt.kept_answer is not None else self._unknown(queue, slot, claim, "INTERRUPTED")

    def _unknown(self, queue: DestinationQueue, slot: Slot, claim: Claim, code: str) -> Outcome:
        return queue.dispatcher.cut_off(claim.attempt, code, claimed_at=claim.claimed_at, began=slot.began)

    async def _after_complete(self, queue: DestinationQueue, slot: Slot, claim: Claim, outcome: Outcome) -> None:
        """The handler settled in its own transaction: lease gone, done; lease still there, it was rolled back."""
        with self._events.step("is_leased", id=claim.attempt.id):
            leased = await self._until_reachable.until_reached(lambda: self._store.is_leased(claim.fence))
        if leased:
            self._finished(queue, self._unknown(queue, slot, claim, "COMPLETE_ROLLED_BACK"))
            return
        self._leases.let_go([claim.fence])
        if claim.attempt.completion.outcome is not None:
            self._settler.tell(claim.attempt.completion.outcome)
        if claim.attempt.sequence is not None:
            self._look_now()  # its lane goes on
        if isinstance(outcome.settlement.answer, Delivered):
            self._gate.saw(queue, outcome)

    def _finished(self, queue: DestinationQueue, outcome: Outcome, *, may_run_on: bool = False) -> None:
        """may_run_on: the handler (a thread, say) does not know that it is over, and may still call `complete`."""
        completing = outcome.attempt.completion.attempted
        if self._runs_apart and outcome.settlement.kind is SettlementKind.RETRY:
            outcome = replace(outcome, suspect=queue.dispatcher.must_run_apart(outcome.attempt))
        record = None if completing else queue.destination.record
        alone = self._settler.add(outcome, record, apart=completing or may_run_on)
        if alone is not None:
            queue.settling += 1
            alone.add_done_callback(lambda _: self._settled_alone(queue))
        self._gate.saw(queue, outcome)

    def _settled_alone(self, queue: DestinationQueue) -> None:
        queue.settling -= 1
        self._changed.set()

    def _free(self, queue: DestinationQueue, slot: Slot) -> None:
        if slot in queue.slots:
            del queue.slots[slot]
            self._slots_used -= 1
            self._changed.set()
            self._give_slot_to_others()

    def _give_slot_to_others(self) -> None:
        """To whoever waits with the fewest, and for longest; one that has all it can use is taken off the list."""
        now = self._clock.monotonic()
        for queue in sorted(self._short, key=lambda queue: len(queue.slots)):
            if not queue.has_free_slot(now):
                self._short.pop(queue, None)
            elif self._slots_used < self._limits.concurrency:
                self._fill_slots(queue)

    def _owes_slot(self, queue: DestinationQueue) -> bool:
        """All slots are in use, and another destination waits with none, or with fewer than this: nobody starves."""
        now = self._clock.monotonic()
        return any(
            other.has_free_slot(now) and (not other.slots or len(other.slots) + 1 < len(queue.slots))
            for other in self._short
        )

    # beside the path

    def _lost(self, claim: Claim) -> None:
        """Somebody reaped it. What waits is dropped; what runs goes on, and its outcome will be refused and kept."""
        queue = self._queues[claim.attempt.destination]
        if claim in queue.waiting:
            queue.waiting.remove(claim)
            self._leases.let_go([claim.fence])
        self._events.emit("message.lease_lost", id=claim.attempt.id, destination=queue.destination.name)

    async def _timekeeping(self) -> None:
        while True:
            await self._clock.sleep(TIMEKEEPER_SECONDS)
            now = self._clock.monotonic()
            for queue in self._queues.values():
                for slot in queue.overdue(now):
                    self._end_overdue(queue, slot, now)
            self._gate.lift_rests()

    def _end_overdue(self, queue: DestinationQueue, slot: Slot, now: float) -> None:
        """Cancel once; a handler that swallows that is abandoned: settled as Unknown, its slot given to another."""
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
            outcome = self._cut_off(queue, slot, slot.claim)
            self._finished(queue, outcome, may_run_on=True)
            queue.end(slot.claim, self._clock.monotonic(), outcome=outcome)
        self._free(queue, slot)
        self._fill_slots(queue)  # what waited behind it

    async def _beating(self) -> None:
        while True:
            await _until_set(self._beat_asked, self._limits.heartbeat_seconds)
            self._beat_asked.clear()
            with suppress(TransientFailure):
                await self._beat()

    async def _beat(self) -> None:
        await self._watch_clock()
        with self._events.step("heartbeat", worker=self._worker):
            states = await self._store.heartbeat(self._worker, listener=self._doorbell.state)
        if not states and not self._stopping.is_set():  # else the row is gone because we took our leave
            await self._register()
        await self._gate.heard(states)
        await self._gate.keys.hear()
        await self._ask_witness()

    def _work_again(self, queue: DestinationQueue) -> None:
        self._fill_slots(queue)
        self._changed.set()

    def _let_go(self) -> None:
        """There may be room again, also under a limit over all relays."""
        for queue in self._capped:
            queue.wake.call(self._clock.monotonic())
        self._changed.set()

    # stop

    async def _finish(self, claiming: asyncio.Task[None]) -> None:
        """Claim nothing more, hand back what has not begun, let the rest end, write every outcome."""
        self._stopping.set()
        await asyncio.wait([claiming], timeout=max(self._limits.stop_seconds, STOP_SECONDS_MIN))
        deadline = self._clock.monotonic() + self._limits.stop_seconds
        await self._within(deadline, self._hand_back_waiting())
        await self._wait_for_slots(deadline)
        await self._within(deadline, self._settler.flushed())
        await self._within(deadline, self._settler.leave())
        await self._within(deadline, self._hand_back_waiting())  # what a settle that was under way has handed over
        await self._within(deadline, self._hand_back_unknown(at_once=True))
        await self._within(deadline, self._leases.all_back())
        await self._within(deadline, self._deregister())

    async def _hand_back_waiting(self) -> None:
        await self._leases.hand_back([claim for queue in self._queues.values() for claim in queue.take_waiting()])

    async def _wait_for_slots(self, deadline: float) -> None:
        tasks = [slot.task for queue in self._queues.values() for slot in queue.slots if slot.task is not None]
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=max(deadline - self._clock.monotonic(), 0))
        for queue in self._queues.values():
            for slot in list(queue.slots):
                if slot.task is not None and slot.task in late:
                    slot.cut = "CUT_OFF"
                    slot.task.cancel()
        if late:
            _, deaf = await asyncio.wait(late, timeout=ABANDON_SECONDS)
            for queue in self._queues.values():
                for slot in [slot for slot in queue.slots if slot.task in deaf]:
                    self._abandon(queue, slot)

    async def _within(self, deadline: float, work: Awaitable[Any]) -> None:
        """A stop must end, even while the database is away; what is left is healed by the reaper."""
        seconds = max(deadline - self._clock.monotonic(), STOP_SECONDS_MIN)
        with suppress(TimeoutError, TransientFailure):
            await asyncio.wait_for(work, seconds)

    async def _until_changed(self, seconds: float) -> None:
        await _until_set(self._changed, seconds)


async def _until_set(event: asyncio.Event, seconds: float) -> None:
    """At most so long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def _capacity(destination: Destination) -> Capacity:
    limit = destination.global_concurrency
    at_once = destination.concurrency if limit is None else min(destination.concurrency, limit)
    only_begun = destination.rules.money and destination.rules.in_doubt != "lookup"
    rated = destination.rate is not None and destination.limit_key is None  # else each of its keys is
    ahead = limit is None and not rated and not only_begun
    return Capacity(destination.name, at_once, ahead=ahead, only_begun=only_begun)


def _forget_cancellation(slot: Slot) -> bool:
    """True when there was one."""
    if slot.cut is None or slot.task is None:
        return False
    slot.task.uncancel()
    return True


def new_worker(random: Random) -> WorkerId:
    """A worker id nobody else has."""
    return WorkerId(UUID(bytes=random.randbytes(16), version=4))
