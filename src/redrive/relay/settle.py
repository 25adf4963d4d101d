"""Writing outcomes: in bulk where there is no user code, one transaction each where there is a `record` (ruling 16).

An outcome is kept here until the database has it: a lost connection, a deadlock, a server that is away are tried again
for as long as the process lives. `record` can neither undo a neighbour nor cause a resend: when it fails for a reason
of its own, the message is parked as unrecorded with the answer kept. What the database refuses for its content is
settled bare; refused even so, the claim is let go and runs out. Called by the loop; SQL: `settle.sql`, `fence.sql`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, Protocol

from redrive import answers, redact
from redrive.answers import Advance, Answer, Delivered
from redrive.events import Events
from redrive.message import Attempt, Fence, ParkReason, WorkerId
from redrive.policy import Settlement, SettlementKind
from redrive.ports import Clock, HandOver, Outcome, Record, RecordFailed, Settled, Store, TransientFailure

BATCH_MAX = 1000
RECORDS_AT_ONCE = 4  # the relay's own CPU is their limit already: more would only take it from the others
APART_AT_ONCE = 2  # each may wait for a lock, and the others need connections too
RECORD_TRIES_MAX = 10
AGAIN_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0)
REFUSED_IN_A_ROW = 10  # then it is not what they contain: the relay stops


class Lanes(Protocol):
    """What the settler asks of the loop about ordered messages."""

    def hand_over(self, batch: Sequence[Outcome]) -> HandOver | None:
        """For which of these the loop would take the next message of the lane."""
        ...

    def take(self, batch: Sequence[Outcome], attempts: Sequence[Attempt], *, asked_at: float) -> None:
        """Take these in hand; they follow messages of the batch."""
        ...

    def over(self, batch: Sequence[Outcome], attempts: Sequence[Attempt]) -> None:
        """The batch is settled, and those were handed over."""
        ...


class Settler:
    """Takes outcomes, writes them, and calls `on_settled` with the claims that are over, whatever became of them.

    on_given_up: with a claim that the database would not settle. on_reply_lost: a settle may have handed over claims
    that this process does not know.
    """

    def __init__(
        self,
        store: Store,
        worker: WorkerId,
        *,
        clock: Clock,
        events: Events,
        record_timeout_seconds: float,
        on_settled: Callable[[Sequence[Fence]], None],
        on_given_up: Callable[[Fence], None],
        on_reply_lost: Callable[[], None],
        lanes: Lanes,
    ) -> None:
        self._store = store
        self._worker = worker
        self._clock = clock
        self._events = events
        self._record_timeout_seconds = record_timeout_seconds
        self._on_settled = on_settled
        self._on_given_up = on_given_up
        self._on_reply_lost = on_reply_lost
        self._handing_over: set[asyncio.Future[None]] = set()
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
        self._places_apart = asyncio.Semaphore(APART_AT_ONCE)

    @property
    def behind(self) -> int:
        """How many outcomes wait to be written in bulk. One that is written alone holds up its destination only."""
        return len(self._bulk) + self._writing

    def add(self, outcome: Outcome, record: Record | None, *, apart: bool = False) -> asyncio.Task[None] | None:
        """Never waits; gives the task that writes it, if it is written alone. Without an answer nothing is recorded.

        apart: its handler may still hold the claim's row in a transaction of its own; nobody else shall wait for that.
        """
        self._empty.clear()
        if record is not None and outcome.settlement.answer is not None:
            return self._start(self._settle_with_record(outcome, record))
        if apart:
            return self._start(self._settle_apart(outcome))
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

    async def flushed(self) -> None:
        """Wait until everything is written."""
        await self._empty.wait()

    def _single_done(self, task: asyncio.Task[None]) -> None:
        self._singles.discard(task)
        self._check_empty()
        if not task.cancelled() and task.exception() is not None:
            self._failure = task.exception()
            self._arrived.set()

    def _check_empty(self) -> None:
        if not self.behind and not self._singles:
            self._empty.set()

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
                self._on_given_up(batch[0].attempt.fence)
                return
        self._done(batch, settled)

    async def _settle_apart(self, outcome: Outcome) -> None:
        async with self._places_apart:
            await self._settle_bulk([outcome])

    async def _write(self, batch: Sequence[Outcome]) -> Settled:
        hand_over = self._lanes.hand_over(batch)
        if hand_over is None:
            return await self._write_batch(batch, None)
        ended = asyncio.get_running_loop().create_future()
        self._handing_over.add(ended)
        try:
            return await self._write_batch(batch, hand_over)
        except TransientFailure:
            self._on_reply_lost()
            raise
        finally:
            self._handing_over.discard(ended)
            if not ended.done():
                ended.set_result(None)

    async def _write_batch(self, batch: Sequence[Outcome], hand_over: HandOver | None) -> Settled:
        asked_at = self._clock.monotonic()
        with self._events.step("settle", count=len(batch)) as added:
            settled = await self._store.settle(self._worker, batch, hand_over=hand_over)
            added.update(settled=settled.settled, refused=len(settled.refused), handed_over=len(settled.handed_over))
        if settled.handed_over:
            self._lanes.take(batch, settled.handed_over, asked_at=asked_at)
        return settled

    async def handed_over(self) -> None:
        """Wait for the settles that are under way now and may hand over a lane: what they bring is in hand then."""
        if self._handing_over:
            await asyncio.wait(list(self._handing_over))

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
            try:
                settled = await self._again_until_reached(_Tries(self._write_one, self._renew, outcome, record))
            except TimeoutError:
                # It may even have committed: then parking finds the claim settled, which is fine.
                await self._settle_bulk([_unrecorded(outcome, "RECORD_TIMEOUT", None)])
                return
            except Exception as failure:  # of the record, or a commit that a deferred constraint of its rows refused
                await self._settle_bulk([_unrecorded(outcome, "RECORD_FAILED", failure.__cause__ or failure)])
                return
        self._done([outcome], settled)

    async def _write_one(self, outcome: Outcome, record: Record, on_step: Callable[[str], None]) -> Settled:
        def tell(step: str) -> None:
            on_step(step)
            self._events.emit(f"{step}.start")

        with self._events.step("settle_one", id=outcome.attempt.id):
            async with asyncio.timeout(self._record_timeout_seconds):
                return await self._store.settle_one(self._worker, outcome, record, on_step=tell)

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
        self._on_settled(fences)
        self._lanes.over(batch, settled.handed_over)

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
