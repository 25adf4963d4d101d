"""One settle with user code in it: fence, record, settle, commit as a whole, or nothing of it (ruling 16)."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from redrive import answers, policy
from redrive.answers import Delivered
from redrive.message import Attempt, MessageId, ParkReason
from redrive.policy import Opening, Rules, Settlement
from redrive.ports import Record, RecordFailed, Settled, TransientFailure
from redrive.store.runtime.postgres import PostgresStore
from tests.support import messages as m
from tests.support.verbs import ACT

pytestmark = pytest.mark.req("G-27")


@pytest.fixture
async def ledger(store: PostgresStore) -> PostgresStore:
    """The store of a database where the application has a table of its own."""
    async with store.connection() as conn:
        await conn.execute("CREATE TABLE ledger (id uuid, reference text)")
    return store


async def write(conn: Any, attempt: Attempt, settlement: Settlement) -> None:
    reference = getattr(settlement.answer, "reference", None)
    await conn.execute("INSERT INTO ledger VALUES (%s, %s)", [attempt.id, reference])


async def settle_one(store: PostgresStore, attempt: Attempt, record: Record) -> tuple[Settled, list[str]]:
    steps: list[str] = []
    outcome = m.outcome(attempt, m.close(Delivered(reference="ref-1")))
    settled = await store.settle_one(m.WORKER, outcome, record, on_step=steps.append, now=m.at(5))
    return settled, steps


async def rows(store: PostgresStore) -> list[Any]:
    return await store.rows("SELECT id, reference FROM ledger", [])


async def test_record_commits_with_the_settlement(ledger: PostgresStore) -> None:
    message_id = await m.enqueue(ledger)
    settled, steps = await settle_one(ledger, await m.claim(ledger), write)
    assert (settled.settled, steps) == (1, ["fence", "record", "settle", "commit"])
    assert await rows(ledger) == [(message_id, "ref-1")]
    assert await m.state_of(ledger, message_id) == "delivered"


async def test_record_that_raises_leaves_nothing_behind_and_the_claim_in_hand(ledger: PostgresStore) -> None:
    await m.enqueue(ledger)
    attempt = await m.claim(ledger)

    async def fail(conn: Any, attempt: Attempt, settlement: Settlement) -> None:
        await write(conn, attempt, settlement)
        raise LookupError("no such account")

    with pytest.raises(RecordFailed) as failed:
        await settle_one(ledger, attempt, fail)
    assert isinstance(failed.value.__cause__, LookupError)
    assert "account" not in str(failed.value)
    assert await rows(ledger) == []
    assert await ledger.is_leased(attempt.fence)


async def test_record_that_ends_the_transaction_itself_has_failed(ledger: PostgresStore) -> None:
    await m.enqueue(ledger)
    attempt = await m.claim(ledger)

    async def swallow(conn: Any, attempt: Attempt, settlement: Settlement) -> None:
        with pytest.raises(psycopg.errors.DivisionByZero):
            await conn.execute("SELECT 1 / 0")

    with pytest.raises(RecordFailed):
        await settle_one(ledger, attempt, swallow)
    assert await ledger.is_leased(attempt.fence)


@pytest.mark.parametrize("error", [psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure])
async def test_record_that_a_retry_can_mend_is_told_apart(ledger: PostgresStore, error: type[Exception]) -> None:
    await m.enqueue(ledger)
    attempt = await m.claim(ledger)

    async def lose(conn: Any, attempt: Attempt, settlement: Settlement) -> None:
        raise error("chosen as the victim")

    with pytest.raises(TransientFailure):
        await settle_one(ledger, attempt, lose)
    settled, _ = await settle_one(ledger, attempt, write)
    assert (settled.settled, len(await rows(ledger))) == (1, 1)


async def test_record_is_not_run_for_a_claim_that_was_lost(ledger: PostgresStore) -> None:
    await m.enqueue(ledger)
    attempt = await m.claim(ledger)
    await ledger.reap(limit=10, now=m.at(100))
    settled, steps = await settle_one(ledger, attempt, write)
    assert (settled.refused, steps) == ([attempt.fence], ["fence", "settle", "commit"])
    assert await rows(ledger) == []


async def test_record_runs_once_though_the_reply_to_the_commit_was_lost(ledger: PostgresStore) -> None:
    await m.enqueue(ledger)
    attempt = await m.claim(ledger)
    await settle_one(ledger, attempt, write)
    again, _ = await settle_one(ledger, attempt, write)
    assert again.repeated == [attempt.fence]
    assert len(await rows(ledger)) == 1


async def _unrecorded(store: PostgresStore) -> MessageId:
    message_id = await m.enqueue(store)
    settlement = m.park(ParkReason.UNRECORDED, answer=Delivered(reference="ref-1", result=[1]), spent=0)
    await m.settle(store, await m.claim(store), settlement, now=m.at(5))
    return message_id


async def test_repair_gives_the_kept_answer_to_record_and_never_sends(ledger: PostgresStore) -> None:
    message_id = await _unrecorded(ledger)
    await ledger.repair(message_id, **ACT, now=m.at(10))
    attempt = await m.claim(ledger, now=m.at(10))
    assert policy.opening(attempt, Rules(), now=m.at(10)) is Opening.RECORD
    assert attempt.kept_answer is not None
    assert answers.from_json(attempt.kept_answer) == Delivered(reference="ref-1", result=[1])
    await settle_one(ledger, attempt, write)
    assert await rows(ledger) == [(message_id, "ref-1")]
    assert await m.state_of(ledger, message_id) == "delivered"


@pytest.mark.parametrize("way_back", ["reap", "hand_back"])
async def test_kept_answer_survives_a_claim_that_came_to_nothing(ledger: PostgresStore, way_back: str) -> None:
    message_id = await _unrecorded(ledger)
    await ledger.repair(message_id, **ACT, now=m.at(10))
    attempt = await m.claim(ledger, now=m.at(10))
    if way_back == "reap":
        await ledger.reap(limit=10, now=m.at(100))
        again = await m.claim_suspect(ledger, now=m.at(100))
    else:
        await ledger.hand_back(m.WORKER, [attempt.fence], now=m.at(11))
        again = await m.claim(ledger, now=m.at(11))
    assert again.kept_answer == attempt.kept_answer
    assert policy.opening(again, Rules(in_doubt="resend"), now=m.at(100)) is Opening.RECORD


async def test_record_that_fails_again_parks_with_the_same_answer(ledger: PostgresStore) -> None:
    message_id = await _unrecorded(ledger)
    await ledger.repair(message_id, **ACT, now=m.at(10))
    attempt = await m.claim(ledger, now=m.at(10))
    parked = m.park(ParkReason.UNRECORDED, spent=0)
    await m.settle(ledger, attempt, parked, kept_answer=None, now=m.at(11))
    kept = (await m.row(ledger, "parked", message_id))["kept_answer"]
    assert answers.from_json(kept) == Delivered(reference="ref-1", result=[1])
