"""history: every attempt and act of a message's life, oldest first, with who, when, what and why (G-05)."""

from __future__ import annotations

import pytest

from redrive.message import HistoryEntry
from tests.conformance.steps import (
    ACT,
    ALICE,
    BOB,
    T0,
    advanced,
    at,
    claim_alone,
    claim_one,
    delivered,
    enqueue,
    parked,
    retried,
    settle,
)
from tests.conformance.subjects import Subject

pytestmark = pytest.mark.req("G-05")


async def test_a_whole_life_is_told_in_order(store: Subject) -> None:
    id = enqueue(store)
    await settle(store, retried(await claim_one(store), delay_seconds=1), now=at(1))
    fence = (await claim_one(store, now=at(2))).fence
    await store.hand_back(ALICE, [fence], now=at(3))
    await claim_one(store, now=at(4))
    await store.reap(limit=1, worker=ALICE, now=at(5))
    await settle(store, parked(await claim_alone(store, now=at(6))), worker=BOB, now=at(7))
    await store.requeue(id, **ACT, now=at(8))
    await settle(store, delivered(await claim_one(store, now=at(9)), result=[1]), now=at(10))
    told = [(e.attempt, e.verb, e.settlement, e.closed) for e in await store.history(id)]
    assert told == [
        (1, "settle", "retry", None),
        (2, "hand_back", "hand_back", None),
        (3, "reap", None, None),
        (4, "settle", "park", None),
        (4, "requeue", None, None),
        (5, "settle", "close", "delivered"),
    ]


async def test_a_row_has_everything_that_was_known(store: Subject) -> None:
    id = enqueue(store)
    attempt = await claim_one(store, now=at(1))
    await settle(store, delivered(attempt, reference="m-1", result={"ok": True}), now=at(2))
    assert await store.history(id) == [
        HistoryEntry(
            attempt=1,
            verb="settle",
            stage="first",
            version=1,
            settlement="close",
            answer="delivered",
            code=None,
            text=None,
            reference="m-1",
            result={"ok": True},
            closed="delivered",
            worker=ALICE,
            actor=None,
            reason=None,
            claimed_at=at(1),
            completed_at=at(2),
            latency_ms=12,
            spent=1,
            due_at=None,
        )
    ]


async def test_a_claim_under_way_is_not_a_row_yet(store: Subject) -> None:
    id = enqueue(store)
    await claim_one(store, now=T0)
    assert await store.history(id) == []


@pytest.mark.req("G-06")
async def test_results_of_earlier_stages_are_there_whatever_the_number_of_attempts(store: Subject) -> None:
    """An attempt carries the newest 50 rows of its archive, and beyond them what each stage had as its result."""
    enqueue(store)
    await settle(store, advanced(await claim_one(store), "second", result={"pdf": 7}), now=at(1))
    for number in range(60):
        await settle(store, retried(await claim_one(store, now=at(2 + number))), now=at(2.5 + number))
    attempt = await claim_one(store, now=at(100))
    assert attempt.results() == {"first": {"pdf": 7}}
    assert [entry.settlement for entry in attempt.history()] == ["advance", *["retry"] * 50]
    assert [entry.attempt for entry in attempt.history()] == [1, *range(12, 62)]
