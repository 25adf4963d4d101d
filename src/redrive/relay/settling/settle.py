"""Writes outcomes: in bulk without user code, one transaction each with a `record`.

An outcome is kept until the database has it: lost connections and deadlocks are tried again as long as the process
lives. A `record` can neither undo a neighbour nor cause a resend: if it fails, the message is parked as unrecorded with
the answer kept. What the database refuses for its content is settled bare; refused again, the claim runs out. Nothing
here waits for a row that another transaction holds: `blocked_outcomes.py`. SQL: `settle.sql`, `fence.sql`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from redrive.message import Attempt, Fence
from redrive.ports import HandOver, Outcome, Record, RecordWaits, Settled
from redrive.relay.context import RelayContext
from redrive.relay.fair_places import FairQueue
from redrive.relay.settling.blocked_outcomes import Busy, BusyOutcomes, Needs
from redrive.relay.settling.facts import FACTS, tell
from redrive.relay.settling.record import AGAIN_SECONDS, WAIT_SECONDS, ClaimWaits, write_recorded
from redrive.relay.settling.unrecorded import to_be_recorded, unrecorded, without_content
from redrive.relay.tasks import end

BATCH_MAX = 1000
RECORDS_AT_ONCE = 4  # of one destination: the relay's CPU is their limit already, more would only take it from others
RECORD_PLACES = 2 * RECORDS_AT_ONCE  # of all: those of a destination that hang leave half to the next one
REFUSED_IN_A_ROW = 10  # then it is not what they contain: the relay stops


class Claims(Protocol):
    """`Leases`, as far as the settler ends claims."""

    def let_go(self, fences: Sequence[Fence]) -> None: ...

    def give_up(self, fence: Fence) -> None: ...


class Lanes(Protocol):
    """`HandOvers`."""

    def hand_over(self, batch: Sequence[Outcome]) -> HandOver | None: ...

    def under_way(self) -> AbstractContextManager[None]: ...

    def take(self, batch: Sequence[Outcome], attempts: Sequence[Attempt], *, asked_at: float) -> None: ...

    def over(self, batch: Sequence[Outcome], attempts: Sequence[Attempt]) -> None: ...


class Settler:
    def __init__(self, context: RelayContext, claims: Claims, lanes: Lanes) -> None:
        self._context = context
        self._clock = context.clock
        self._events = context.events
        self._claims = claims
        self._lanes = lanes
        self._bulk: list[Outcome] = []
        self._arrived = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._writing = 0
        self._singles: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self._refused_in_a_row = 0
        self._places = FairQueue(RECORD_PLACES)
        self._busy = BusyOutcomes(
            clock=context.clock, try_again=self._try_again, wait_for=self._wait_for, on_failure=self._failed
        )

    @property
    def behind(self) -> int:
        """Outcomes that wait to be written in bulk. One that is written singly holds up its destination only."""
        return len(self._bulk) + self._writing

    @property
    def busy(self) -> int:
        """Outcomes that wait for a transaction that is not ours."""
        return len(self._busy)

    def busy_of(self, destination: str) -> int:
        return self._busy.count_of(destination)

    def add(self, outcome: Outcome, record: Record | None, *, singly: bool = False) -> asyncio.Task[None] | None:
        """Never waits; returns the task that writes it if it is written singly. Without an answer nothing is recorded.

        singly: its handler may still hold the claim in its own transaction, so it counts as running until then.
        """
        self._empty.clear()
        if record is not None and outcome.settlement.answer is not None:
            return self._start(self._settle_in_turn(outcome, record))
        if singly:
            return self._start(self._settle_singly(outcome))
        self._bulk.append(outcome)
        self._arrived.set()
        return None

    def _start(self, single: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(single)
        self._singles.add(task)
        task.add_done_callback(self._single_done)
        return task

    async def run(self) -> None:
        """Writes what has arrived, in one go; meanwhile more arrives. A failure of ours in any write ends it: a claim
        that will not be settled must not be renewed for ever."""
        later = asyncio.create_task(self._busy.run())
        later.add_done_callback(self._note_failure)
        try:
            while True:
                await self._arrived.wait()
                if self._failure is not None:
                    raise self._failure
                batch, self._bulk = self._bulk[:BATCH_MAX], self._bulk[BATCH_MAX:]
                if not self._bulk:
                    self._arrived.clear()
                self._writing = len(batch)
                await self._settle_bulk(batch)
                self._writing = 0
                self._check_empty()
        finally:
            await end([later])

    async def flushed(self) -> None:
        await self._empty.wait()

    async def leave(self) -> None:
        """The relay stops. An answer that cannot be recorded now goes back with its message: another relay records it
        and never sends it. Whatever else is left keeps its lease until that runs out, and is in doubt then."""
        while True:
            await self._busy.stop_waiting()
            kept = [to_be_recorded(busy.outcome) for busy in self._busy.left(Needs.LOCK)]
            if kept:
                await self._settle_bulk(kept)
            if not self._singles and not self._busy.left(Needs.LOCK):
                return
            await self._clock.sleep(AGAIN_SECONDS[0])  # a record that was cut off has not let go of its claim yet

    def _single_done(self, task: asyncio.Task[None]) -> None:
        self._singles.discard(task)
        self._check_empty()
        self._note_failure(task)

    def _note_failure(self, task: asyncio.Task[None]) -> None:
        failure = None if task.cancelled() else task.exception()
        if failure is not None:
            self._failed(failure)

    def _failed(self, failure: BaseException) -> None:
        self._failure = failure
        self._arrived.set()

    def _check_empty(self) -> None:
        if not self.behind and not self._singles and not self._busy:
            self._empty.set()

    # later, because another transaction holds what is needed

    async def _try_again(self, kept: Sequence[Busy]) -> None:
        bulk = [busy.outcome for busy in kept if busy.record is None]
        for start in range(0, len(bulk), BATCH_MAX):
            await self._settle_bulk(bulk[start : start + BATCH_MAX])
        for busy in kept:
            if busy.record is not None:
                await self._settle_in_turn(busy.outcome, busy.record)
        self._check_empty()

    async def _wait_for(self, busy: Busy) -> None:
        if busy.record is not None:
            await self._settle_recorded(busy.outcome, busy.record, wait=True)
        else:
            try:
                async with asyncio.timeout(WAIT_SECONDS):
                    settled = await self._write([busy.outcome], wait=True)
            except Exception:  # waited in vain, or refused for its content: the next round sees to it
                return
            self._done([busy.outcome], settled)
        self._check_empty()

    async def _settle_bulk(self, batch: Sequence[Outcome]) -> None:
        settled: Settled | None
        try:
            settled = await self._until_reachable(lambda: self._write(batch))
        except Exception:
            if len(batch) > 1:
                for outcome in batch:
                    await self._settle_bulk([outcome])
                return
            settled = await self._write_bare(batch[0])
            if settled is None:
                self._busy.end([batch[0].attempt.fence])
                self._claims.give_up(batch[0].attempt.fence)
                return
        if settled.busy:
            busy = set(settled.busy)
            for outcome in batch:
                if outcome.attempt.fence in busy:
                    self._busy.add(outcome, None, Needs.CLAIM)
            batch = [outcome for outcome in batch if outcome.attempt.fence not in busy]
        self._done(batch, settled)

    async def _settle_singly(self, outcome: Outcome) -> None:
        await self._settle_bulk([outcome])
        await self._busy.until_written(outcome.attempt.fence)

    async def _write(self, batch: Sequence[Outcome], *, wait: bool = False) -> Settled:
        hand_over = self._lanes.hand_over(batch)
        if hand_over is None:
            return await self._write_batch(batch, None, wait=wait)
        with self._lanes.under_way():
            return await self._write_batch(batch, hand_over, wait=wait)

    async def _write_batch(self, batch: Sequence[Outcome], hand_over: HandOver | None, *, wait: bool) -> Settled:
        asked_at = self._clock.monotonic()
        with self._events.step("settle", count=len(batch)) as added:
            settled = await self._context.store.settle(self._context.worker, batch, hand_over=hand_over, wait=wait)
            added.update(
                settled=settled.settled,
                refused=len(settled.refused),
                handed_over=len(settled.handed_over),
                busy=len(settled.busy),
            )
        if settled.handed_over:
            self._lanes.take(batch, settled.handed_over, asked_at=asked_at)
        return settled

    async def _write_bare(self, outcome: Outcome) -> Settled | None:
        """Without the content that the database refused. None: refused again; the claim is not renewed and comes back
        in doubt."""
        bare = without_content(outcome)
        try:
            return await self._until_reachable(lambda: self._write([bare]))
        except Exception:
            self._refused_in_a_row += 1
            if self._refused_in_a_row >= REFUSED_IN_A_ROW:
                raise
            return None

    async def _settle_in_turn(self, outcome: Outcome, record: Record) -> None:
        async with self._places.place(outcome.attempt.destination):
            await self._settle_recorded(outcome, record)

    async def _settle_recorded(self, outcome: Outcome, record: Record, *, wait: bool = False) -> None:
        try:
            settled = await write_recorded(self._context, outcome, record, wait=wait)
        except RecordWaits:
            self._busy.add(outcome, record, Needs.LOCK)
            return
        except ClaimWaits:
            self._busy.add(outcome, record, Needs.CLAIM)
            return
        except TimeoutError:
            # It may even have committed: then parking finds the claim settled, which is fine.
            await self._settle_bulk([unrecorded(outcome, "RECORD_TIMEOUT", None)])
            return
        except Exception as failure:  # of the record, or a commit that a deferred constraint of its rows refused
            await self._settle_bulk([unrecorded(outcome, "RECORD_FAILED", failure.__cause__ or failure)])
            return
        self._done([outcome], settled)

    async def _until_reachable(self, write: Callable[[], Awaitable[Settled]]) -> Settled:
        return await self._context.until_reachable(write, during="settle", pauses=AGAIN_SECONDS)

    def _done(self, batch: Sequence[Outcome], settled: Settled) -> None:
        self._refused_in_a_row = 0
        fences = [outcome.attempt.fence for outcome in batch]
        if any(map(self._events.wants, FACTS)):
            refused = set(settled.refused)
            for outcome, fence in zip(batch, fences, strict=True):
                tell(self._events, outcome, refused=fence in refused)
        self._busy.end(fences)
        self._claims.let_go(fences)
        self._lanes.over(batch, settled.handed_over)
