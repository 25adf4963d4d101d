"""Writing outcomes: in bulk where there is no user code, one transaction each where there is a `record` (ruling 16).

An outcome is kept here until the database has it: a lost connection, a deadlock, a server that is away are tried again
for as long as the process lives. `record` can neither undo a neighbour nor cause a resend: when it fails for a reason
of its own, the message is parked as unrecorded with the answer kept. What the database refuses for its content is
settled bare; refused even so, the claim is let go and runs out. Nothing here waits for a row that another transaction
holds: such an outcome is written later, apart from the others (`busy.py`). Called by the loop; SQL: `settle.sql`,
`fence.sql`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from redrive import answers, redact
from redrive.answers import Advance, Answer, Delivered
from redrive.message import Attempt, Fence, ParkReason
from redrive.policy import Settlement, SettlementKind
from redrive.ports import (
    HandOver,
    Outcome,
    Record,
    RecordFailed,
    RecordWaits,
    Settled,
    TransientFailure,
)
from redrive.relay.context import RelayContext
from redrive.relay.settling.blocked_outcomes import Busy, BusyOutcomes, Needs
from redrive.relay.tasks import end

BATCH_MAX = 1000
RECORDS_AT_ONCE = 4  # the relay's own CPU is their limit already: more would only take it from the others
WAIT_SECONDS = 10.0  # for a transaction that holds a claim; then another one is waited for
RECORD_LOCK_SECONDS = 0.25  # for a lock that a `record` asks for, while other records wait for its place
RECORD_LOCK_APART_SECONDS = 2.0  # and apart from them
RECORD_TRIES_MAX = 10
AGAIN_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0)
REFUSED_IN_A_ROW = 10  # then it is not what they contain: the relay stops


class Claims(Protocol):
    """The claims of the relay, as far as the settler ends them."""

    def let_go(self, fences: Sequence[Fence]) -> None:
        """These are over."""
        ...

    def give_up(self, fence: Fence) -> None:
        """The database does not settle this one."""
        ...


class Lanes(Protocol):
    """What the settler asks of the relay about ordered messages."""

    def hand_over(self, batch: Sequence[Outcome]) -> HandOver | None:
        """For which of these the relay takes the next message of the lane."""
        ...

    def under_way(self) -> AbstractContextManager[None]:
        """Around a settle that may hand over."""
        ...

    def take(self, batch: Sequence[Outcome], attempts: Sequence[Attempt], *, asked_at: float) -> None:
        """Take these; they follow messages of the batch."""
        ...

    def over(self, batch: Sequence[Outcome], attempts: Sequence[Attempt]) -> None:
        """The batch is settled, and those were handed over."""
        ...


class Settler:
    """Takes outcomes, writes them, and ends their claims."""

    def __init__(self, context: RelayContext, claims: Claims, lanes: Lanes) -> None:
        self._store = context.store
        self._worker = context.worker
        self._clock = context.clock
        self._events = context.events
        self._record_timeout_seconds = context.limits.record_seconds
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
        self._places = asyncio.Semaphore(RECORDS_AT_ONCE)
        self._busy = BusyOutcomes(
            clock=context.clock, try_again=self._try_again, wait_for=self._wait_for, on_failure=self._failed
        )

    @property
    def behind(self) -> int:
        """How many outcomes wait to be written in bulk. One that is written alone holds up its destination only."""
        return len(self._bulk) + self._writing

    @property
    def busy(self) -> int:
        """How many outcomes wait for a transaction that is not ours."""
        return len(self._busy)

    def add(self, outcome: Outcome, record: Record | None, *, singly: bool = False) -> asyncio.Task[None] | None:
        """Never waits; gives the task that writes it, if it is written alone. Without an answer nothing is recorded.

        singly: its handler may still hold the claim in a transaction of its own, so it counts as running until then.
        """
        self._empty.clear()
        if record is not None and outcome.settlement.answer is not None:
            return self._start(self._settle_with_record(outcome, record))
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
        """Write what has arrived, all of it at once; while that happens, more arrives. Ends by cancellation, or by a
        failure of ours in any of the writes: a claim that nobody will settle must not be renewed for ever."""
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
        """Wait until everything is written."""
        await self._empty.wait()

    async def leave(self) -> None:
        """The relay stops. What was answered and cannot be recorded now goes back with its answer: another relay
        records it, and never sends it. What is left besides keeps its lease until that runs out, and is in doubt then.
        """
        while True:
            await self._busy.stop_waiting()
            kept = [_to_be_recorded(busy.outcome) for busy in self._busy.left(Needs.LOCK)]
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
                async with self._places:
                    await self._settle_recorded(busy.outcome, busy.record)
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
            settled = await self._again_until_reached(lambda: self._write(batch))
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
            settled = await self._store.settle(self._worker, batch, hand_over=hand_over, wait=wait)
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
        """Recording an outcome cannot fail because of its content (I43): what the database refused is left out.

        None where even that is refused: the claim is not renewed any more, and comes back in doubt when it has run out.
        """
        answer = outcome.settlement.answer
        if isinstance(answer, Delivered | Advance):
            answer = replace(answer, result=None)
        bare = replace(
            outcome, settlement=replace(outcome.settlement, answer=answer), text=None, stack=None, context={}
        )
        try:
            return await self._again_until_reached(lambda: self._write([bare]))
        except Exception:
            self._refused_in_a_row += 1
            if self._refused_in_a_row >= REFUSED_IN_A_ROW:
                raise
            return None

    async def _settle_with_record(self, outcome: Outcome, record: Record) -> None:
        async with self._places:
            await self._settle_recorded(outcome, record)

    async def _settle_recorded(self, outcome: Outcome, record: Record, *, wait: bool = False) -> None:
        """wait: in a place apart, where a lock may be waited for without keeping other records from theirs."""
        try:
            write = partial(self._write_one, wait=wait)
            settled = await self._again_until_reached(_Tries(write, self._renew, outcome, record))
        except RecordWaits:
            self._busy.add(outcome, record, Needs.LOCK)
            return
        except _ClaimWaits:
            self._busy.add(outcome, record, Needs.CLAIM)
            return
        except TimeoutError:
            # It may even have committed: then parking finds the claim settled, which is fine.
            await self._settle_bulk([_unrecorded(outcome, "RECORD_TIMEOUT", None)])
            return
        except Exception as failure:  # of the record, or a commit that a deferred constraint of its rows refused
            await self._settle_bulk([_unrecorded(outcome, "RECORD_FAILED", failure.__cause__ or failure)])
            return
        self._done([outcome], settled)

    async def _write_one(
        self, outcome: Outcome, record: Record, on_step: Callable[[str], None], *, wait: bool
    ) -> Settled:
        loop = asyncio.get_running_loop()
        seconds = self._record_timeout_seconds
        lock_seconds = min(RECORD_LOCK_APART_SECONDS if wait else RECORD_LOCK_SECONDS, seconds / 2)
        fenced = False

        def tell(step: str) -> None:
            nonlocal fenced
            if step != "fence":
                fenced = True
            if step == "record":
                limit.reschedule(loop.time() + seconds)
            on_step(step)
            self._events.emit(f"{step}.start")

        try:
            with self._events.step("settle_one", id=outcome.attempt.id):
                async with asyncio.timeout(WAIT_SECONDS if wait else seconds) as limit:
                    settled = await self._store.settle_one(
                        self._worker, outcome, record, on_step=tell, wait=wait, lock_seconds=lock_seconds
                    )
        except TimeoutError:
            if fenced:
                raise
            raise _ClaimWaits from None
        if settled.busy:
            raise _ClaimWaits
        return settled

    async def _renew(self, outcome: Outcome) -> None:
        """A claim cannot be renewed while its record holds it; before the next try it gets a whole lease again."""
        with self._events.step("renew", count=1):
            await self._store.renew(self._worker, [outcome.attempt.fence], lease_seconds=outcome.attempt.lease_seconds)

    async def _again_until_reached(self, write: Callable[[], Awaitable[Settled]]) -> Settled:
        tries = 0
        while True:
            try:
                return await write()
            except TransientFailure:
                self._events.emit("relay.unreachable", during="settle", tries=tries)
                await self._clock.sleep(AGAIN_SECONDS[min(tries, len(AGAIN_SECONDS) - 1)])
                tries += 1

    def _done(self, batch: Sequence[Outcome], settled: Settled) -> None:
        self._refused_in_a_row = 0
        fences = [outcome.attempt.fence for outcome in batch]
        if any(map(self._events.wants, _FACTS)):
            refused = set(settled.refused)
            for outcome, fence in zip(batch, fences, strict=True):
                self.tell(outcome, refused=fence in refused)
        self._end(fences)
        self._lanes.over(batch, settled.handed_over)

    def _end(self, fences: Sequence[Fence]) -> None:
        self._busy.end(fences)
        self._claims.let_go(fences)

    def tell(self, outcome: Outcome, *, refused: bool = False) -> None:
        """What became of it, as a fact; also of one that the handler has settled itself."""
        name = "message.refused" if refused else _FACT[outcome.settlement.kind]
        if name == "message.closed" and outcome.settlement.closed == "delivered":
            name = "message.delivered"
        if self._events.wants(name):
            settlement = outcome.settlement
            self._events.emit(
                name,
                id=outcome.attempt.id,
                destination=outcome.attempt.destination,
                attempt=outcome.attempt.number,
                code=settlement.error_class,
                delay_seconds=settlement.delay_seconds,
                in_doubt=settlement.in_doubt,
                reason=settlement.park_reason and settlement.park_reason.value,
                latency_ms=outcome.latency_ms,
                age_seconds=_age_seconds(outcome),
            )


class _ClaimWaits(Exception):
    """Another transaction holds the claim; nothing was recorded."""


class _Tries:
    """Writing one outcome with its record, again and again: a database that is away is waited for. A `record` that
    itself deadlocks or times out every time is not: it is parked like any other failure of its own (ruling 16)."""

    def __init__(
        self,
        write: Callable[[Outcome, Record, Callable[[str], None]], Awaitable[Settled]],
        renew: Callable[[Outcome], Awaitable[None]],
        outcome: Outcome,
        record: Record,
    ) -> None:
        self._write = write
        self._renew = renew
        self._outcome = outcome
        self._record = record
        self._step: str | None = None
        self._failures = 0

    async def __call__(self) -> Settled:
        again, self._step = self._step is not None, ""
        try:
            if again:
                await self._renew(self._outcome)
            return await self._write(self._outcome, self._record, self._at)
        except TransientFailure as failure:
            self._failures += self._step == "record"
            if self._failures >= RECORD_TRIES_MAX:
                raise RecordFailed from failure.__cause__
            raise

    def _at(self, step: str) -> None:
        self._step = step


_FACTS = (
    "message.delivered",
    "message.closed",
    "message.advanced",
    "message.retried",
    "message.parked",
    "message.refused",
)
_FACT = {
    SettlementKind.CLOSE: "message.closed",
    SettlementKind.ADVANCE: "message.advanced",
    SettlementKind.RETRY: "message.retried",
    SettlementKind.PARK: "message.parked",
    SettlementKind.HAND_BACK: "message.handed_back",
}


def _age_seconds(outcome: Outcome) -> float:
    """From its enqueue to now: by the database's clock up to the claim, and by ours what the attempt took."""
    attempt = outcome.attempt
    return max(0.0, (attempt.claimed_at - attempt.created_at).total_seconds() + (outcome.latency_ms or 0) / 1000)


def _unrecorded(outcome: Outcome, code: str, cause: BaseException | None) -> Outcome:
    """Parked with the answer kept: `repair` runs record with it again, and never sends."""
    settlement = outcome.settlement
    assert settlement.answer is not None
    parked = Settlement(
        kind=SettlementKind.PARK,
        answer=settlement.answer,
        park_reason=ParkReason.UNRECORDED,
        error_class=code,
        spent=outcome.attempt.spent,
        lookups=outcome.attempt.lookups,
        in_doubt=settlement.in_doubt,
        halts=True,
    )
    return replace(
        outcome,
        settlement=parked,
        text=redact.error_type(cause) if cause else None,
        stack=redact.stack(cause) if cause else None,
        context=redact.context(
            {
                "message_id": outcome.attempt.id,
                "attempt": outcome.attempt.number,
                "stage": outcome.attempt.stage,
            }
        ),
        kept_answer=_kept(settlement.answer),
    )


def _to_be_recorded(outcome: Outcome) -> Outcome:
    """Back with the answer kept, and nothing spent: the next claim runs `record` with it, and never sends."""
    settlement = outcome.settlement
    assert settlement.answer is not None
    back = Settlement(
        kind=SettlementKind.RETRY,
        answer=settlement.answer,
        error_class="RECORD_WAITS",
        spent=outcome.attempt.spent,
        lookups=outcome.attempt.lookups,
        in_doubt=outcome.attempt.in_doubt,
    )
    return replace(outcome, settlement=back, text=None, stack=None, context={}, kept_answer=_kept(settlement.answer))


def _kept(answer: Answer) -> dict[str, Any]:
    """The answer as JSON; a field that is none (a UUID for a reference) is kept as text."""
    return {
        name: value if _is_json(value) else redact.storable(value) for name, value in answers.to_json(answer).items()
    }


def _is_json(value: object) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True
