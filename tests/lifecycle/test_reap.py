"""Claims that ran out: back to pending, in doubt, unspent, each a suspect; their late outcomes are refused and kept."""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta

import pytest
from psycopg import sql

from redrive.answers import Retryable
from redrive.message import Attempt, MessageId
from redrive.policy import Settlement
from redrive.store.runtime.postgres import PostgresStore
from tests.support import messages as m
from tests.support.situations import late_answers

AFTER_LEASE = m.at(m.LEASE_SECONDS + 1)


async def crash_alone(store: PostgresStore, *, seconds: float) -> Attempt:
    """The next suspect takes its process down."""
    suspect = await m.claim_suspect(store, now=m.at(seconds))
    await store.reap(limit=10, worker=m.OTHER_WORKER, now=m.at(seconds))
    return suspect


@pytest.mark.req("G-14")
async def test_lease_that_ran_out_comes_back_with_the_same_id(store: PostgresStore) -> None:
    message_id = await m.enqueue(store)
    attempt = await m.claim(store)
    assert (await store.reap(limit=10, now=m.at(m.LEASE_SECONDS))).requeued == 0
    assert (await store.reap(limit=10, now=AFTER_LEASE)).requeued == 1
    (entry,) = await store.history(message_id)
    assert (entry.attempt, entry.verb, entry.code, entry.closed) == (1, "reap", "LEASE_RAN_OUT", None)
    assert (entry.claimed_at, entry.worker, entry.spent) == (attempt.claimed_at, m.WORKER, 0)
    assert await m.conserved(store)


@pytest.mark.req("G-14")
async def test_renewed_lease_is_not_reaped(store: PostgresStore) -> None:
    await m.enqueue(store)
    attempt = await m.claim(store)
    ours = await store.renew(m.WORKER, [attempt.fence], lease_seconds=m.LEASE_SECONDS, now=m.at(30))
    assert ours == [attempt.fence]
    assert (await store.reap(limit=10, now=AFTER_LEASE)).requeued == 0
    assert (await store.reap(limit=10, now=m.at(91))).requeued == 1


@pytest.mark.req("G-14")
async def test_outage_of_the_server_does_not_count_against_a_lease(store: PostgresStore) -> None:
    """A lease that ended before the server was up again is given as long as a lease from the server's start."""
    message_id = await m.enqueue(store)
    rows = await store.rows("SELECT redrive.server_ready_at()", [])
    started = rows[0][0]
    before = started - timedelta(seconds=3 * m.LEASE_SECONDS)
    await _make_due(store, message_id, before)
    await m.claim(store, now=before)
    just_up = started + timedelta(seconds=m.LEASE_SECONDS - 1)
    assert (await store.reap(limit=10, now=just_up)).requeued == 0
    assert (await store.reap(limit=10, now=just_up + timedelta(seconds=2))).requeued == 1


@pytest.mark.req("G-14")
async def test_lease_counts_from_when_the_server_took_connections_not_from_its_start(store: PostgresStore) -> None:
    """In between it recovers, for longer than a lease maybe, and nobody can renew."""
    ((started, writes),) = await store.rows(
        "SELECT pg_postmaster_start_time(), backend_start FROM pg_stat_activity WHERE backend_type = 'walwriter'", []
    )
    assert started < writes
    message_id = await m.enqueue(store)
    await _make_due(store, message_id, started)
    query = "SELECT count(*) FROM redrive.claim_1(%s, %s, '{1}', '{1}', 1, p_now => %s)"
    assert await store.rows(query, [m.WORKER, [m.DESTINATION], started]) == [(1,)]
    lease, recovery = timedelta(seconds=1), writes - started
    assert (await store.reap(limit=10, now=started + lease + recovery / 2)).requeued == 0
    assert (await store.reap(limit=10, now=writes + lease)).requeued == 0
    assert (await store.reap(limit=10, now=writes + lease + timedelta(microseconds=1))).requeued == 1


@pytest.mark.req("G-14")
async def test_without_the_right_to_see_the_servers_processes_its_start_has_to_do(store: PostgresStore) -> None:
    blind = sql.Identifier(f"redrive_test_{secrets.token_hex(6)}")
    async with store.connection() as conn:
        await conn.execute(sql.SQL("CREATE ROLE {}").format(blind))
        try:
            await conn.execute(sql.SQL("GRANT USAGE ON SCHEMA redrive TO {}").format(blind))
            await conn.execute(sql.SQL("GRANT EXECUTE ON FUNCTION redrive.server_ready_at() TO {}").format(blind))
            await conn.execute(sql.SQL("SET ROLE {}").format(blind))
            cursor = await conn.execute("SELECT redrive.server_ready_at() = pg_postmaster_start_time()")
            assert await cursor.fetchone() == (True,)
        finally:
            await conn.execute("RESET ROLE")
            await conn.execute(sql.SQL("DROP OWNED BY {}").format(blind))
            await conn.execute(sql.SQL("DROP ROLE {}").format(blind))


async def _make_due(store: PostgresStore, message_id: MessageId, moment: datetime) -> None:
    query = "UPDATE redrive.pending SET due_at = %s WHERE id = %s RETURNING id"
    await store.rows(query, [moment, message_id])


@pytest.mark.req("G-14")
async def test_lease_that_ends_impossibly_far_in_the_future_gets_one_lease_from_now(store: PostgresStore) -> None:
    """The clock was set back since; whether its relay lives, one lease tells."""
    await m.enqueue(store)
    await m.claim(store, now=m.at(100_000))
    for seconds, requeued in ((100_000, 0), (50_000, 0), (50_059, 0), (50_061, 1)):
        assert (await store.reap(limit=10, now=m.at(seconds))).requeued == requeued, seconds


@pytest.mark.req("G-18")
async def test_reaped_batch_comes_back_unspent_in_doubt_and_suspect(store: PostgresStore) -> None:
    ids = {await m.enqueue(store) for _ in range(3)}
    await m.claim_all(store)
    assert (await store.reap(limit=10, now=AFTER_LEASE)).requeued == 3
    for message_id in ids:
        row = await m.row(store, "pending", message_id)
        assert (row["spent"], row["crashes"], row["suspect"]) == (0, 0, True)
        assert row["in_doubt_since"] is not None
    assert (await m.claim_all(store, now=AFTER_LEASE)).attempts == []


@pytest.mark.req("G-18")
async def test_reap_takes_no_more_than_its_limit(store: PostgresStore) -> None:
    for _ in range(3):
        await m.enqueue(store)
    await m.claim_all(store)
    assert [(await store.reap(limit=2, now=AFTER_LEASE)).requeued for _ in range(3)] == [2, 1, 0]


@pytest.mark.req("G-18")
async def test_suspect_is_the_only_lease_of_its_worker(store: PostgresStore) -> None:
    for _ in range(2):
        await m.enqueue(store)
    await m.claim_all(store)
    await store.reap(limit=10, now=AFTER_LEASE)
    first = await m.claim_suspect(store, now=AFTER_LEASE)
    assert first.alone
    again = await store.claim_suspect(m.OTHER_WORKER, [m.DESTINATION], lease_seconds=60, now=AFTER_LEASE)
    assert again.attempts == []
    await m.settle(store, first, m.close(), worker=m.OTHER_WORKER, now=AFTER_LEASE)
    assert (await m.claim_suspect(store, now=AFTER_LEASE)).id != first.id


@pytest.mark.req("G-12")
@pytest.mark.req("G-18")
async def test_only_a_crash_while_alone_counts(store: PostgresStore) -> None:
    message_id = await m.enqueue(store)
    await m.claim(store)
    await store.reap(limit=10, now=AFTER_LEASE)
    assert (await m.row(store, "pending", message_id))["crashes"] == 0
    await crash_alone(store, seconds=100)
    await crash_alone(store, seconds=200)
    row = await m.row(store, "pending", message_id)
    assert (row["crashes"], row["spent"], row["attempt"]) == (2, 0, 3)
    codes = [e.code for e in await store.history(message_id)]
    assert codes == ["LEASE_RAN_OUT", "WORKER_DIED", "WORKER_DIED"]


@pytest.mark.req("G-18")
async def test_message_that_crashed_alone_stays_a_suspect_through_a_retry(store: PostgresStore) -> None:
    message_id = await m.enqueue(store)
    await m.claim(store)
    await store.reap(limit=10, now=AFTER_LEASE)
    await crash_alone(store, seconds=100)
    suspect = await m.claim_suspect(store, now=m.at(200))
    assert suspect.crashes == 1
    await m.settle(store, suspect, m.retry(), worker=m.OTHER_WORKER, now=m.at(200))
    assert (await m.row(store, "pending", message_id))["suspect"] is True


@pytest.mark.req("G-18")
async def test_innocent_suspect_is_an_ordinary_message_after_a_retry(store: PostgresStore) -> None:
    message_id = await m.enqueue(store)
    await m.claim(store)
    await store.reap(limit=10, now=AFTER_LEASE)
    suspect = await m.claim_suspect(store, now=m.at(100))
    await m.settle(store, suspect, m.retry(), worker=m.OTHER_WORKER, now=m.at(100))
    assert (await m.claim(store, now=m.at(100))).id == message_id


@pytest.mark.req("G-18")
async def test_suspect_that_is_handed_back_stays_a_suspect(store: PostgresStore) -> None:
    await m.enqueue(store)
    await m.claim(store)
    await store.reap(limit=10, now=AFTER_LEASE)
    suspect = await m.claim_suspect(store, now=m.at(100))
    await store.hand_back(m.OTHER_WORKER, [suspect.fence], now=m.at(100))
    assert (await m.claim_all(store, now=m.at(100))).attempts == []
    assert (await m.claim_suspect(store, now=m.at(100))).crashes == 0


@pytest.mark.req("G-14")
async def test_late_outcome_of_a_reaped_claim_is_refused_and_kept(store: PostgresStore) -> None:
    message_id = await m.enqueue(store)
    late = await m.claim(store)
    await store.reap(limit=10, now=AFTER_LEASE)
    settled = await m.settle(store, late, m.close(), now=m.at(100))
    assert (settled.settled, settled.refused, settled.repeated) == (0, [late.fence], [])
    assert await m.state_of(store, message_id) == "pending"
    query = "SELECT message_id, attempt, worker, at, settlement, answer, reference FROM redrive.late_answer"
    kept = (message_id, 1, m.WORKER, m.at(100), "close", "delivered", "ref-1")
    assert await store.rows(query, []) == [kept]
    assert [e.verb for e in await store.history(message_id)] == ["reap"]


@pytest.mark.req("G-14")
async def test_late_failure_is_kept_with_its_code_and_text(store: PostgresStore) -> None:
    await m.enqueue(store)
    late = await m.claim(store)
    await store.reap(limit=10, now=AFTER_LEASE)
    await m.settle(store, late, m.retry(Retryable("HTTP_503", "busy")), text="busy", now=m.at(100))
    query = "SELECT settlement, answer, code, text FROM redrive.late_answer"
    assert await store.rows(query, []) == [("retry", "retryable", "HTTP_503", "busy")]


@pytest.mark.req("G-14")
async def test_late_outcome_does_not_touch_the_claim_that_followed(store: PostgresStore) -> None:
    await m.enqueue(store)
    late = await m.claim(store)
    await store.reap(limit=10, now=AFTER_LEASE)
    current = await m.claim_suspect(store, now=m.at(100))
    assert (await m.settle(store, late, m.close(), now=m.at(101))).refused == [late.fence]
    assert await store.is_leased(current.fence)
    assert (await m.settle(store, current, m.close(), worker=m.OTHER_WORKER, now=m.at(102))).settled == 1
    assert await m.conserved(store)


@pytest.mark.req("G-14")
async def test_lost_claim_in_a_batch_does_not_hold_up_its_neighbours(store: PostgresStore) -> None:
    for _ in range(3):
        await m.enqueue(store)
    first, second, third = (await m.claim_all(store)).attempts
    await store.hand_back(m.WORKER, [second.fence], now=m.at(1))
    outcomes = [m.outcome(a, m.close()) for a in (first, second)] + [m.outcome(third, m.retry())]
    settled = await store.settle(m.WORKER, outcomes, now=m.at(2))
    assert (settled.settled, settled.refused) == (2, [second.fence])
    assert await m.conserved(store)


@pytest.mark.req("G-14")
@pytest.mark.parametrize("settlement", [m.close(), m.retry(), m.park(), m.advance()], ids=lambda s: s.kind)
async def test_outcome_sent_again_after_a_lost_reply_is_recognised(
    store: PostgresStore, settlement: Settlement
) -> None:
    message_id = await m.enqueue(store)
    attempt = await m.claim(store)
    await m.settle(store, attempt, settlement)
    again = await m.settle(store, attempt, settlement)
    assert (again.settled, again.refused, again.repeated) == (0, [], [attempt.fence])
    assert len(await store.history(message_id)) == 1
    assert await late_answers(store) == 0


@pytest.mark.req("G-14")
async def test_same_fence_from_another_worker_is_no_repetition(store: PostgresStore) -> None:
    await m.enqueue(store)
    attempt = await m.claim(store)
    await m.settle(store, attempt, m.close())
    again = await m.settle(store, attempt, m.close(), worker=m.OTHER_WORKER)
    assert (again.refused, again.repeated) == ([attempt.fence], [])
