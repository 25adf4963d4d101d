"""The tests that the document of payments asks for, by its own names and through its own tables (P-06, P-08).

Two of them are beside what they test: `test_submit.py` has the numbers of a participant, and the keys.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import psycopg
import pytest

import redrive
from redrive.answers import Retryable
from redrive.store.runtime.postgres import PostgresStore
from redrive.systems import payments
from redrive.systems.payments import Rail, Submitted
from tests.relay.harness import relaying
from tests.relay.test_doorbell import sleeping
from tests.support import messages as m
from tests.systems.payments.conftest import SETTLEMENTS, claimed, instruction, rows
from tests.systems.payments.scripted import ScriptedRail
from tests.transports.servers import HERE, serving

pytestmark = [pytest.mark.req("P-06"), pytest.mark.req("P-08")]

PENDING = "SELECT outbox_id, sequence_id, attempt_count, next_attempt_at FROM redrive_payments.payment_outbox_pending"
ATTEMPTS = "SELECT attempt_no, state FROM redrive_payments.payment_outbox_attempts ORDER BY created_at, attempt_no"


@pytest.fixture
def paying(database: str) -> str:
    """A database for each test: they look at whole tables."""
    return database


@pytest.fixture
def submitted(paying: str, participant: str) -> Submitted:
    with psycopg.connect(paying) as conn:
        return payments.submit(conn, instruction(participant))


async def _settled(dsn: str, made: Submitted, settlement: Any) -> None:
    async with PostgresStore(dsn) as store:
        await store.settle(m.WORKER, [m.outcome(await claimed(store, made.outbox_id), settlement)])


@pytest.mark.seed("002", "claim removes pending + inserts DISPATCHING attempt")
async def test_a_claim_removes_the_pending_row_and_shows_a_dispatching_attempt(
    paying: str, submitted: Submitted
) -> None:
    assert [row[:3] for row in rows(paying, PENDING)] == [(submitted.outbox_id, 1, 0)]
    assert rows(paying, ATTEMPTS) == []
    async with PostgresStore(paying) as store:
        await claimed(store, submitted.outbox_id)
    assert rows(paying, PENDING) == []
    assert rows(paying, ATTEMPTS) == [(1, "DISPATCHING")]


@pytest.mark.seed("002", "success inserts DISPATCHED and does not requeue")
async def test_a_success_is_dispatched_and_not_requeued(paying: str, submitted: Submitted) -> None:
    await _settled(paying, submitted, SETTLEMENTS["delivered"])
    assert rows(paying, PENDING) == []
    assert rows(paying, ATTEMPTS) == [(1, "DISPATCHED")]


@pytest.mark.seed("002", "retry inserts RETRYABLE + requeues with backoff")
async def test_a_retry_is_retryable_and_requeued_with_backoff(paying: str, submitted: Submitted) -> None:
    before = rows(paying, "SELECT clock_timestamp()")[0][0]
    again = m.retry(Retryable("UNAVAILABLE"), error_class="UNAVAILABLE", delay_seconds=90)
    await _settled(paying, submitted, again)
    ((outbox_id, sequence_id, attempt_count, next_attempt_at),) = rows(paying, PENDING)
    assert (outbox_id, sequence_id, attempt_count) == (submitted.outbox_id, submitted.sequence_id, 1)
    assert next_attempt_at >= before + timedelta(seconds=90)
    assert rows(paying, ATTEMPTS) == [(1, "RETRYABLE")]


@pytest.mark.seed("002", "zombie repair requeues stale DISPATCHING")
async def test_a_stale_dispatching_attempt_is_requeued_as_the_same_payment(paying: str, submitted: Submitted) -> None:
    async with PostgresStore(paying) as store:
        await claimed(store, submitted.outbox_id)
        assert (await store.reap(limit=10)).requeued == 0  # it is not stale yet
        late = (await store.now()) + timedelta(seconds=m.LEASE_SECONDS + 1)
        ready = rows(paying, "SELECT redrive.server_ready_at()")[0][0] + timedelta(seconds=m.LEASE_SECONDS + 1)
        assert (await store.reap(limit=10, now=max(late, ready))).requeued == 1
    assert [row[:3] for row in rows(paying, PENDING)] == [(submitted.outbox_id, submitted.sequence_id, 1)]
    assert rows(paying, ATTEMPTS) == [(1, "ZOMBIE_REQUEUE")]


@pytest.mark.seed("002", "notify wakeup + poll fallback both drive processing")
@pytest.mark.parametrize("wakeup", ["notify", "poll"])
async def test_a_payment_is_made_by_notify_alone_and_by_the_poll_alone(
    paying: str, participant: str, wakeup: str
) -> None:
    """By notify: the relay sleeps and would not look for a minute. By the poll: nobody listens."""
    rail = ScriptedRail()
    async with serving(rail.answer) as rail.server, PostgresStore(paying) as store:
        app = redrive.App()
        app.include(payments.with_rails([Rail(rail_type="sepa", url=rail.server.url, egress=HERE)]))
        running = sleeping(store, app, paying) if wakeup == "notify" else relaying(store, app)
        async with running as relay:
            async with await psycopg.AsyncConnection.connect(paying) as conn:
                await payments.asubmit(conn, instruction(participant))
            await relay.seen.until("message.delivered")
        await app.destinations["payments.sepa"].transport.aclose()  # type: ignore[attr-defined]
    assert len(rail.ledger) == 1
    assert rows(paying, ATTEMPTS) == [(1, "DISPATCHED")]


@pytest.mark.req("P-05")
async def test_a_rail_that_answers_only_after_the_lease_pays_once_and_its_answer_is_kept_as_evidence(
    paying: str, submitted: Submitted
) -> None:
    rail, paid, may_answer = ScriptedRail(), asyncio.Event(), asyncio.Event()

    async def slow(request: Any) -> Any:
        if request.method == "POST":
            answer = await rail.answer(request)
            paid.set()
            await may_answer.wait()
            return answer
        return await rail.answer(request)

    async with serving(slow) as rail.server, PostgresStore(paying) as store:
        declared = Rail(rail_type="sepa", url=rail.server.url, egress=HERE, token_ttl_seconds=86_400, can_look_up=True)
        transport: Any = declared.destination().transport
        first = await claimed(store, submitted.outbox_id)
        sending = asyncio.create_task(transport.send(first))
        await asyncio.wait_for(paid.wait(), 60)
        await store.reap(limit=10, worker=m.WORKER)
        second = (await store.claim_suspect(m.OTHER_WORKER, ["payments.sepa"], lease_seconds=60)).attempts[0]
        found = await transport.lookup(second)
        await store.settle(
            m.OTHER_WORKER, [m.outcome(second, m.close(redrive.Delivered(found.reference, found.result)))]
        )
        may_answer.set()
        late = await asyncio.wait_for(sending, 60)
        settled = await store.settle(m.WORKER, [m.outcome(first, m.close(late))])
        await transport.aclose()
    assert settled.refused
    assert rows(paying, ATTEMPTS) == [(1, "ZOMBIE_REQUEUE"), (2, "DISPATCHED")]
    assert rows(paying, "SELECT attempt, answer, reference FROM redrive.late_answer") == [(1, "delivered", "ref-1")]
    assert len(rail.ledger) == 1
