"""settle_one: fence, record and settle in one transaction; all of it happens, or none."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from redrive.message import Attempt, CancelAnswer, Fence, MessageId
from redrive.policy import Settlement
from redrive.ports import RecordFailed, Settled, TransientFailure
from tests.conformance.steps import (
    ALICE,
    BOB,
    LEASE_SECONDS,
    at,
    claim,
    claim_one,
    delivered,
    enqueue,
    retried,
)
from tests.conformance.subjects import Subject

pytestmark = pytest.mark.req("G-27")


class Recorder:
    """A record that notes what it was given, then waits or raises if it was told to."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.calls: list[tuple[MessageId, Settlement]] = []
        self.entered = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()
        self._error = error

    async def __call__(self, conn: Any, attempt: Attempt, settlement: Settlement) -> None:
        self.calls.append((attempt.id, settlement))
        self.entered.set()
        await self.go_on.wait()
        if self._error is not None:
            raise self._error


async def test_record_runs_between_fence_and_settle(store: Subject) -> None:
    id = enqueue(store)
    outcome = delivered(await claim_one(store), reference="m-1")
    record, steps = Recorder(), list[str]()
    settled = await store.settle_one(ALICE, outcome, record, on_step=steps.append, now=at(1))
    assert settled == Settled(1, [], [])
    assert record.calls == [(id, outcome.settlement)]
    assert steps == ["fence", "record", "settle", "commit"]
    (row,) = await store.history(id)
    assert (row.closed, row.reference, row.completed_at) == ("delivered", "m-1", at(1))


async def test_record_does_not_run_where_the_claim_was_lost(store: Subject) -> None:
    id = enqueue(store)
    outcome = delivered(await claim_one(store))
    await store.reap(limit=1, worker=ALICE, now=at(1))
    record, steps = Recorder(), list[str]()
    settled = await store.settle_one(ALICE, outcome, record, on_step=steps.append, now=at(2))
    assert settled == Settled(0, [Fence(id, 1)], [])
    assert record.calls == []
    assert "record" not in steps
    assert len(store.late_answers) == 1


async def test_record_does_not_run_twice_for_one_claim(store: Subject) -> None:
    id = enqueue(store)
    outcome = delivered(await claim_one(store))
    record = Recorder()
    await store.settle_one(ALICE, outcome, record, on_step=_nothing, now=at(1))
    again = await store.settle_one(ALICE, outcome, record, on_step=_nothing, now=at(2))
    assert again == Settled(0, [], [Fence(id, 1)])
    assert len(record.calls) == 1


async def test_a_record_that_fails_changes_nothing_and_says_why(store: Subject) -> None:
    id = enqueue(store)
    outcome = delivered(await claim_one(store))
    before = store.places()
    with pytest.raises(RecordFailed) as failure:
        await store.settle_one(ALICE, outcome, Recorder(ValueError("x")), on_step=_nothing, now=at(1))
    assert isinstance(failure.value.__cause__, ValueError)
    assert (store.places(), await store.history(id)) == (before, [])
    assert await store.is_leased(outcome.attempt.fence)


async def test_a_record_that_a_retry_can_mend_is_a_transient_failure(store: Subject) -> None:
    enqueue(store)
    outcome = delivered(await claim_one(store))
    record = Recorder(store.transient_error())
    with pytest.raises(TransientFailure):
        await store.settle_one(ALICE, outcome, record, on_step=_nothing, now=at(1))
    assert await store.is_leased(outcome.attempt.fence)
    assert (await store.settle_one(ALICE, outcome, Recorder(), on_step=_nothing, now=at(2))).settled == 1


@pytest.mark.parametrize("step", ["fence", "record", "settle", "commit"])
async def test_what_is_cut_off_at_any_step_did_not_happen(store: Subject, step: str) -> None:
    id = enqueue(store)
    outcome = delivered(await claim_one(store))

    def cut_off(at_step: str) -> None:
        if at_step == step:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await store.settle_one(ALICE, outcome, Recorder(), on_step=cut_off, now=at(1))
    assert (store.state_of(id), await store.history(id)) == ("leased", [])
    assert (await store.settle(ALICE, [outcome], now=at(2))).settled == 1


async def test_a_claim_whose_record_runs_is_not_reaped_and_counts_as_ours(store: Subject) -> None:
    id = enqueue(store)
    outcome = delivered(await claim_one(store))
    record = Recorder()
    record.go_on.clear()
    settling = asyncio.create_task(store.settle_one(ALICE, outcome, record, on_step=_nothing, now=at(1)))
    await asyncio.wait_for(record.entered.wait(), 10)
    assert (await store.reap(limit=5, now=at(999))).requeued == 0
    assert (await store.reap(limit=5, worker=ALICE, now=at(999))).requeued == 0
    fences = [outcome.attempt.fence]
    assert await store.renew(ALICE, fences, lease_seconds=LEASE_SECONDS, now=at(2)) == fences
    record.go_on.set()
    assert (await settling).settled == 1
    assert store.state_of(id) == "delivered"


@pytest.mark.req("G-24")
async def test_a_cancel_while_record_runs_is_busy_and_changes_nothing(store: Subject) -> None:
    id = enqueue(store)
    outcome = delivered(await claim_one(store))
    record = Recorder()
    record.go_on.clear()
    settling = asyncio.create_task(store.settle_one(ALICE, outcome, record, on_step=_nothing, now=at(1)))
    await asyncio.wait_for(record.entered.wait(), 10)
    assert await store.cancel(id, now=at(2)) is CancelAnswer.BUSY
    record.go_on.set()
    await settling
    assert store.state_of(id) == "delivered"


async def test_a_second_settle_waits_for_the_record_and_then_finds_the_claim_gone(store: Subject) -> None:
    id = enqueue(store)
    outcome = delivered(await claim_one(store))
    record = Recorder()
    record.go_on.clear()
    first = asyncio.create_task(store.settle_one(ALICE, outcome, record, on_step=_nothing, now=at(1)))
    await asyncio.wait_for(record.entered.wait(), 10)
    second = asyncio.create_task(store.settle(BOB, [outcome], now=at(2)))
    record.go_on.set()
    assert (await first).settled == 1
    assert await second == Settled(0, [Fence(id, 1)], [])


@pytest.mark.req("G-31")
@pytest.mark.parametrize("how", ["plain", "retry"])
async def test_outcomes_of_others_are_settled_beside_a_record_and_its_own_is_busy(store: Subject, how: str) -> None:
    held, other = enqueue(store), enqueue(store)
    claims = {attempt.id: attempt for attempt in await claim(store, now=at(0))}
    record = Recorder()
    record.go_on.clear()
    outcome = delivered(claims[held])
    settling = asyncio.create_task(store.settle_one(ALICE, outcome, record, on_step=_nothing, now=at(1)))
    await asyncio.wait_for(record.entered.wait(), 10)
    said = [delivered(one) if how == "plain" else retried(one) for one in (claims[held], claims[other])]
    assert await store.settle(ALICE, said, wait=False, now=at(2)) == Settled(1, [], [], busy=(Fence(held, 1),))
    assert store.state_of(held) == "leased"
    assert store.state_of(other) == {"plain": "delivered", "retry": "pending"}[how]
    again = await store.settle_one(ALICE, outcome, Recorder(), on_step=_nothing, wait=False, now=at(3))
    assert again == Settled(0, busy=(Fence(held, 1),))
    assert await store.hand_back(ALICE, [Fence(held, 1)], wait=False, now=at(4)) == []
    assert store.late_answers == []
    record.go_on.set()
    assert (await settling).settled == 1
    assert (await store.settle(ALICE, [outcome], wait=False, now=at(5))).repeated == [Fence(held, 1)]


@pytest.mark.parametrize("cancelled", [False, True])
async def test_what_goes_back_with_its_answer_is_claimed_with_it_even_if_it_was_cancelled(
    store: Subject, cancelled: bool
) -> None:
    id = enqueue(store)
    attempt = await claim_one(store)
    if cancelled:
        assert await store.cancel(id, now=at(1)) is CancelAnswer.IN_FLIGHT
    answer = {"answer": "delivered", "reference": "m-1"}
    back = replace(retried(attempt, delay_seconds=0), kept_answer=answer)
    assert await store.settle(ALICE, [back], now=at(1)) == Settled(1, [], [])
    assert store.state_of(id) == "pending"
    again = await claim_one(store, now=at(2))
    assert (again.kept_answer, again.cancel_requested) == (answer, cancelled)


def _nothing(_: str) -> None:
    pass
