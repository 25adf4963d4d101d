"""Writing outcomes, whatever the database says to it: nothing is forgotten, nobody waits for another (ruling 16)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID, uuid5

import pytest

from redrive.answers import Advance, Answer, Delivered, Retryable, from_json
from redrive.message import Attempt, Fence, MessageId, ParkReason, WorkerId
from redrive.policy import Settlement, SettlementKind
from redrive.ports import HandOver, Outcome, Record, RecordFailed, RecordWaits, RelayInfo, Settled, TransientFailure
from redrive.relay.context import RelayContext
from redrive.relay.settling import settle
from redrive.relay.settling.blocked_outcomes import WAITERS_MAX, Needs
from redrive.relay.settling.record import RECORD_TRIES_MAX
from redrive.relay.settling.settle import REFUSED_IN_A_ROW, Settler
from redrive.settings import RelayLimits
from tests.model_store.model import ModelStore
from tests.relay.harness import Seen
from tests.support import messages as m


class At(ModelStore):
    """A store that asks before each settle what shall happen to it. written: every batch that went through.

    locked: another transaction holds these, until `unlocked`. waiting: how many settles wait for that.
    """

    def __init__(self) -> None:
        super().__init__()
        self.tries = 0
        self.written: list[list[Outcome]] = []
        self.before: Callable[[Sequence[Outcome]], None] = lambda _: None
        self.open = asyncio.Event()
        self.open.set()
        self.locked: set[MessageId] = set()
        self.unlocked = asyncio.Event()
        self.waiting = 0

    async def settle(
        self,
        worker: WorkerId,
        outcomes: Sequence[Outcome],
        *,
        hand_over: HandOver | None = None,
        wait: bool = True,
        now: datetime | None = None,
    ) -> Settled:
        self.tries += 1
        await self.open.wait()
        self.before(outcomes)
        busy = [o.attempt.fence for o in outcomes if o.attempt.id in self.locked]
        if busy and wait:
            self.waiting += 1
            try:
                await self.unlocked.wait()
            finally:
                self.waiting -= 1
            busy = []
        written = [o for o in outcomes if o.attempt.fence not in busy]
        if written:
            self.written.append(written)
        return Settled(len(written), busy=busy)

    async def settle_one(
        self,
        worker: WorkerId,
        outcome: Outcome,
        record: Record,
        *,
        on_step: Callable[[str], None],
        wait: bool = True,
        lock_seconds: float | None = None,
        now: datetime | None = None,
    ) -> Settled:
        self.tries += 1
        on_step("fence")
        if outcome.attempt.id in self.locked:
            if not wait:
                return Settled(0, busy=[outcome.attempt.fence])
            await self.unlocked.wait()
        on_step("record")
        await record(None, outcome.attempt, outcome.settlement)
        self.written.append([outcome])
        return Settled(1)


class NoWait:
    """A clock on which nobody has to wait."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


class NoLanes:
    """Nobody here takes the next message of a lane."""

    def hand_over(self, batch: Sequence[Outcome]) -> HandOver | None:
        return None

    def under_way(self) -> AbstractContextManager[None]:
        raise AssertionError("nothing is handed over")

    def take(self, batch: Sequence[Outcome], attempts: Sequence[Attempt], *, asked_at: float) -> None:
        raise AssertionError(f"nothing was asked for, but {attempts} were handed over")

    def over(self, batch: Sequence[Outcome], attempts: Sequence[Attempt]) -> None: ...


class Claims:
    def __init__(self) -> None:
        self.over: list[Fence] = []

    def let_go(self, fences: Sequence[Fence]) -> None:
        self.over.extend(fences)

    def give_up(self, fence: Fence) -> None:
        self.over.append(fence)


class Rig:
    def __init__(self) -> None:
        self.store = At()
        self.seen = Seen()
        self.clock = NoWait()
        claims = Claims()
        self.over = claims.over
        context = RelayContext(
            store=self.store,
            info=RelayInfo(worker=m.WORKER, name="r", host="h", pid=1, version="0", destinations=[]),
            limits=RelayLimits(record_timeout_seconds=0.1),
            clock=self.clock,
            events=self.seen.events,
        )
        self.settler = Settler(context, claims, NoLanes())
        self.task: asyncio.Task[None] | None = None

    async def flushed(self) -> None:
        async with asyncio.timeout(5):
            await self.settler.flushed()

    async def failure(self) -> BaseException | None:
        assert self.task is not None
        async with asyncio.timeout(5):
            await asyncio.wait([self.task])
        return self.task.exception()


@asynccontextmanager
async def settling() -> AsyncIterator[Rig]:
    rig = Rig()
    rig.task = asyncio.create_task(rig.settler.run())
    yield rig
    rig.task.cancel()
    await asyncio.wait([rig.task])


def attempt(number: int) -> Attempt:
    return m.attempt(id=MessageId(uuid5(UUID(int=0), str(number))))


def outcome(number: int, answer: Answer | None = None, **values: Any) -> Outcome:
    return m.outcome(attempt(number), m.close(answer or Delivered("r-1")), **values)


async def nothing(conn: Any, attempt: Attempt, settlement: Settlement) -> None: ...


# in bulk


async def test_what_arrives_while_one_batch_is_written_is_the_next_batch() -> None:
    async with settling() as rig:
        rig.store.open.clear()
        rig.settler.add(outcome(0), None)
        await rig.seen.until("settle.start")
        for number in range(1, 50):
            rig.settler.add(outcome(number), None)
        rig.store.open.set()
        await rig.flushed()
        assert [len(batch) for batch in rig.store.written] == [1, 49]
        assert len(rig.over) == 50


async def test_a_database_that_is_away_is_tried_for_as_long_as_it_takes() -> None:
    async with settling() as rig:

        def away(outcomes: Sequence[Outcome]) -> None:
            if rig.store.tries < 40:
                raise TransientFailure

        rig.store.before = away
        rig.settler.add(outcome(0), None)
        await rig.flushed()
        assert rig.store.tries == 40
        assert len(rig.seen.of("relay.unreachable")) == 39
        assert rig.clock.slept[:7] == [0.05, 0.1, 0.25, 0.5, 1.0, 1.0, 1.0]


async def test_one_outcome_that_the_database_refuses_takes_nobody_along() -> None:
    """It is settled without what may be the reason; its neighbours as they are."""
    refused = outcome(3, Delivered("r-1", {"odd": 1}), text="odd", stack="odd", context={"odd": 1})

    def refuse(outcomes: Sequence[Outcome]) -> None:
        if any(o.text == "odd" for o in outcomes):
            raise ValueError("refused")

    async with settling() as rig:
        rig.store.before = refuse
        for number in (1, 2):
            rig.settler.add(outcome(number), None)
        rig.settler.add(refused, None)
        rig.settler.add(outcome(4), None)
        await rig.flushed()
        written = {o.attempt.id: o for batch in rig.store.written for o in batch}
        bare = written[refused.attempt.id]
        assert len(written) == 4
        assert (bare.text, bare.stack, bare.context) == (None, None, {})
        assert bare.settlement.answer == Delivered("r-1")
        assert len(rig.over) == 4


async def test_a_result_that_is_refused_is_left_out_of_an_advance_too() -> None:
    def refuse(outcomes: Sequence[Outcome]) -> None:
        if any(getattr(o.settlement.answer, "result", None) for o in outcomes):
            raise ValueError("refused")

    async with settling() as rig:
        rig.store.before = refuse
        rig.settler.add(m.outcome(attempt(1), m.advance(answer=Advance("second", {"odd": 1}))), None)
        await rig.flushed()
        assert rig.store.written[0][0].settlement.answer == Advance("second")


async def test_an_outcome_that_is_refused_for_good_is_let_go_and_the_relay_goes_on() -> None:
    """Its lease is not renewed any more, runs out, and the message comes back in doubt."""
    bad = attempt(1).id

    def refuse(outcomes: Sequence[Outcome]) -> None:
        if any(o.attempt.id == bad for o in outcomes):
            raise ValueError("refused")

    async with settling() as rig:
        rig.store.before = refuse
        for _ in range(3 * REFUSED_IN_A_ROW):
            rig.settler.add(outcome(1), None)
            rig.settler.add(outcome(2), None)
            await rig.flushed()
        assert len(rig.over) == 6 * REFUSED_IN_A_ROW
        assert {o.attempt.id for batch in rig.store.written for o in batch} == {attempt(2).id}
        assert rig.seen.of("message.delivered", id=bad) == []


async def test_a_database_that_refuses_everything_stops_the_relay() -> None:
    def refuse(outcomes: Sequence[Outcome]) -> None:
        raise PermissionError("revoked")

    async with settling() as rig:
        rig.store.before = refuse
        for number in range(2 * REFUSED_IN_A_ROW):
            rig.settler.add(outcome(number), None)
        assert isinstance(await rig.failure(), PermissionError)
        assert len(rig.over) == REFUSED_IN_A_ROW - 1


# one by one


async def test_everything_is_written_before_it_says_so() -> None:
    """A single one that ends while a batch is still being written must not look like the end of all."""
    async with settling() as rig:
        rig.store.open.clear()
        rig.settler.add(outcome(1), None)
        await rig.seen.until("settle.start")
        rig.settler.add(outcome(2), nothing)
        await rig.seen.until("settle_one.stop")
        await asyncio.sleep(0)
        flushed = asyncio.create_task(rig.settler.flushed())
        await asyncio.sleep(0)
        assert not flushed.done()
        assert rig.settler.behind == 1
        rig.store.open.set()
        async with asyncio.timeout(5):
            await flushed
        assert len(rig.over) == 2


@pytest.mark.req("G-31")
@pytest.mark.parametrize("singly", [False, True])
async def test_what_another_transaction_holds_is_waited_for_beside_the_others_and_not_in_crowds(singly: bool) -> None:
    """Each waiter has a connection of its own for as long as that transaction likes; the others need some too."""
    async with settling() as rig:
        rig.store.locked = {attempt(number).id for number in range(20)}
        tasks = [rig.settler.add(outcome(number), None, singly=singly) for number in range(20)]
        for number in range(100, 120):  # others that were cut off too, and that no handler holds
            rig.settler.add(outcome(number), None, singly=singly)
        await rig.seen.until("message.delivered", count=20)
        await rig.seen.that(lambda: rig.store.waiting == WAITERS_MAX[Needs.CLAIM], what="the waiters to wait")
        assert len(rig.over) == 20
        assert (rig.settler.behind, rig.settler.busy) == (0, 20)
        assert all(task is not None and not task.done() for task in tasks) is singly  # counted as in hand
        rig.store.locked.clear()
        rig.store.unlocked.set()
        await rig.flushed()
        written = [o.attempt.id for batch in rig.store.written for o in batch]
        assert len(written) == len(set(written)) == len(rig.over) == 40
        assert rig.settler.busy == 0


@pytest.mark.req("G-31")
async def test_what_is_waited_for_in_vain_makes_room_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a few transactions that never end would keep all waiters, and what others hold would never have one."""
    monkeypatch.setattr(settle, "WAIT_SECONDS", 0.01)
    waited: set[MessageId] = set()

    class Endless(At):
        async def settle(self, *arguments: Any, **options: Any) -> Settled:
            if options["wait"]:
                waited.update(o.attempt.id for o in arguments[1])
            return await super().settle(*arguments, **options)

    async with settling() as rig:
        rig.settler._context.store = rig.store = Endless()
        rig.store.locked = {attempt(number).id for number in range(10)}
        for number in range(10):
            rig.settler.add(outcome(number), None)
        await rig.seen.that(lambda: len(waited) == 10, what="each to have been waited for")


@pytest.mark.req("G-31")
async def test_what_one_destination_waits_for_in_vain_leaves_waiters_to_the_next() -> None:
    """A waiter is first when the other transaction ends, before a reaper even if the claim has run out meanwhile."""
    waited: set[str] = set()

    class Endless(At):
        async def settle(self, *arguments: Any, **options: Any) -> Settled:
            if options["wait"]:
                waited.update(o.attempt.destination for o in arguments[1])
            return await super().settle(*arguments, **options)

    async with settling() as rig:
        rig.settler._context.store = rig.store = Endless()
        rig.store.locked = {attempt(number).id for number in range(21)}
        for number in range(20):
            rig.settler.add(outcome(number), None)
        await rig.seen.that(lambda: rig.store.waiting == WAITERS_MAX[Needs.CLAIM], what="the waiters to wait")
        other = m.outcome(replace(attempt(20), destination="mail"), m.close(Delivered()))
        rig.settler.add(other, None)
        await rig.seen.that(lambda: waited == {"shop", "mail"}, what="the other destination to have a waiter")
        assert rig.store.waiting == WAITERS_MAX[Needs.CLAIM] + 1


@pytest.mark.req("G-27")
@pytest.mark.req("G-31")
async def test_a_record_that_hangs_when_it_is_tried_again_keeps_no_other_outcome_from_that() -> None:
    begun = asyncio.Event()

    async def hang(conn: Any, attempt: Attempt, settlement: Settlement) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with settling() as rig:
        rig.settler._context.limits = RelayLimits(record_timeout_seconds=30)
        rig.store.locked = {attempt(1).id, attempt(2).id}
        rig.settler.add(outcome(1), hang)
        await rig.seen.that(lambda: rig.settler.busy == 1, what="its claim to be held")
        rig.store.locked = {attempt(2).id}
        async with asyncio.timeout(5):
            await begun.wait()
        rig.settler.add(m.outcome(replace(attempt(2), destination="mail"), m.close(Delivered())), None)
        await rig.seen.that(lambda: rig.settler.busy == 2, what="the other claim to be held")
        rig.store.locked.clear()
        await rig.seen.until("message.delivered", destination="mail")


@pytest.mark.req("G-27")
@pytest.mark.req("G-31")
async def test_a_record_that_waits_for_a_lock_has_its_turn_before_all_that_another_destination_has_waiting() -> None:
    many = 100
    runs: list[MessageId] = []

    async def endless(conn: Any, attempt: Attempt, settlement: Settlement) -> None:
        runs.append(attempt.id)
        await asyncio.sleep(0.01)
        raise RecordWaits

    momentary = [RecordWaits()]

    async def soon(conn: Any, attempt: Attempt, settlement: Settlement) -> None:
        if momentary:
            raise momentary.pop()

    async with settling() as rig:
        for number in range(many):
            rig.settler.add(outcome(number), endless)
        await rig.seen.that(lambda: rig.settler.busy == many, what="all to wait")
        before = len(runs)
        rig.settler.add(m.outcome(replace(attempt(many), destination="mail"), m.close(Delivered())), soon)
        await rig.seen.until("message.delivered", destination="mail")
        assert len(runs) - before < many / 2
        await rig.settler.leave()


@pytest.mark.req("G-27")
@pytest.mark.req("G-31")
async def test_a_record_whose_claim_another_transaction_holds_keeps_no_other_record_waiting() -> None:
    async with settling() as rig:
        rig.store.locked = {attempt(number).id for number in range(10)}
        for number in range(10):
            rig.settler.add(outcome(number), nothing)
        for number in range(100, 110):
            rig.settler.add(outcome(number), nothing)
        await rig.seen.until("message.delivered", count=10)
        assert len(rig.over) == 10
        rig.store.locked.clear()
        rig.store.unlocked.set()
        await rig.flushed()
        assert len(rig.over) == 20
        assert len(rig.seen.of("message.delivered")) == 20


@pytest.mark.req("G-27")
@pytest.mark.req("G-31")
async def test_a_record_that_waits_for_a_lock_is_run_again_until_it_has_it_and_is_not_parked() -> None:
    held = True
    runs: list[MessageId] = []

    async def record(conn: Any, attempt: Attempt, settlement: Settlement) -> None:
        runs.append(attempt.id)
        if held:
            raise RecordWaits

    async with settling() as rig:
        for number in range(3):
            rig.settler.add(outcome(number), record)
        await rig.seen.that(lambda: len(runs) > 5 * RECORD_TRIES_MAX, what="it to be run again and again")
        assert rig.store.written == []
        assert rig.settler.busy == 3
        held = False
        await rig.flushed()
        assert len(rig.seen.of("message.delivered")) == 3


@pytest.mark.req("G-09")
@pytest.mark.req("G-31")
async def test_a_settler_that_leaves_gives_back_what_cannot_be_recorded_with_its_answer() -> None:
    async def record(conn: Any, attempt: Attempt, settlement: Settlement) -> None:
        raise RecordWaits

    async with settling() as rig:
        rig.settler.add(outcome(1, Delivered("r-1", {"a": 1})), record)
        await rig.seen.that(lambda: rig.settler.busy == 1, what="it to wait")
        async with asyncio.timeout(5):
            await rig.settler.leave()
        ((back,),) = rig.store.written
    assert back.settlement.kind is SettlementKind.RETRY
    assert (back.settlement.spent, back.settlement.in_doubt) == (0, False)
    assert back.kept_answer is not None
    assert from_json(back.kept_answer) == Delivered("r-1", {"a": 1})
    assert rig.over == [attempt(1).fence]


async def test_a_settlement_without_an_answer_is_not_recorded() -> None:
    async def never(conn: Any, attempt: Attempt, settlement: Settlement) -> None:
        raise AssertionError

    async with settling() as rig:
        rig.settler.add(m.outcome(attempt(1), m.park(ParkReason.HELD)), never)
        await rig.flushed()
        assert len(rig.store.written) == 1


@pytest.mark.req("G-27")
@pytest.mark.parametrize(
    ("failures", "parked"), [(1, False), (RECORD_TRIES_MAX - 1, False), (RECORD_TRIES_MAX, True), (50, True)]
)
async def test_a_record_that_deadlocks_is_run_again_and_in_the_end_parked(failures: int, parked: bool) -> None:
    tried: list[int] = []

    async def record(conn: Any, attempt: Attempt, settlement: Settlement) -> None:
        tried.append(1)
        if len(tried) <= failures:
            raise TransientFailure("deadlock")

    async with settling() as rig:
        rig.settler.add(outcome(1), record)
        await rig.flushed()
        settlement = rig.store.written[0][0].settlement
        assert (settlement.park_reason is ParkReason.UNRECORDED) is parked
        assert len(tried) == min(failures + 1, RECORD_TRIES_MAX)


@pytest.mark.req("G-27")
async def test_a_database_that_is_away_does_not_count_against_the_record() -> None:
    class Away(At):
        async def settle_one(self, *arguments: Any, **options: Any) -> Settled:
            if self.tries < 3 * RECORD_TRIES_MAX:
                self.tries += 1
                raise TransientFailure
            return await super().settle_one(*arguments, **options)

    async with settling() as rig:
        rig.settler._context.store = Away()
        rig.settler.add(outcome(1), nothing)
        await rig.flushed()
        assert rig.seen.of("message.delivered")


@pytest.mark.req("G-27")
@pytest.mark.parametrize(
    "answer",
    [
        Delivered("r-1", {"a": [1]}),
        Delivered(UUID(int=5)),  # type: ignore[arg-type]  # what a handler may do
        Retryable("BUSY", retry_after=float("nan")),
        Advance("second", {"a": 1}, "erp"),
    ],
    ids=repr,
)
async def test_a_record_that_fails_parks_the_message_with_the_answer_kept(answer: Answer) -> None:
    async def record(conn: Any, attempt: Attempt, settlement: Settlement) -> None:
        raise RecordFailed from LookupError("account 4711")

    async with settling() as rig:
        rig.settler.add(m.outcome(attempt(1), m.close(answer)), record)
        await rig.flushed()
        ((parked,),) = rig.store.written
    assert parked.settlement.park_reason is ParkReason.UNRECORDED
    assert parked.settlement.error_class == "RECORD_FAILED"
    assert parked.text == "LookupError"
    assert "4711" not in repr((parked.text, parked.stack, parked.context))
    assert parked.kept_answer is not None
    assert type(from_json(parked.kept_answer)) is type(answer)
    for value in parked.kept_answer.values():
        assert value is None or isinstance(value, str | bool | int | dict)


@pytest.mark.req("G-27")
async def test_a_record_that_takes_too_long_parks_the_message() -> None:
    async def record(conn: Any, attempt: Attempt, settlement: Settlement) -> None:
        await asyncio.Event().wait()

    async with settling() as rig:
        rig.settler.add(outcome(1), record)
        await rig.flushed()
        ((parked,),) = rig.store.written
    assert (parked.settlement.park_reason, parked.settlement.error_class) == (ParkReason.UNRECORDED, "RECORD_TIMEOUT")


async def test_records_are_written_several_at_a_time_and_not_all() -> None:
    inside: list[int] = []
    most: list[int] = []

    async def record(conn: Any, attempt: Attempt, settlement: Settlement) -> None:
        inside.append(1)
        most.append(len(inside))
        await asyncio.sleep(0)
        inside.pop()

    async with settling() as rig:
        for number in range(40):
            rig.settler.add(outcome(number), record)
        await rig.flushed()
    assert max(most) == 4


async def test_a_failure_of_ours_in_a_single_write_ends_the_settler() -> None:
    """Otherwise its claim would be renewed for ever by a relay that only seems to live."""
    async with settling() as rig:

        def broken(name: str, values: object) -> None:
            raise ZeroDivisionError

        rig.seen.events.subscribe(broken, "message.delivered")
        rig.settler.add(outcome(1), nothing)
        assert isinstance(await rig.failure(), ZeroDivisionError)
