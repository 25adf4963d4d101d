"""From enqueue to closed: delivered, retried, advanced, exhausted; what each step spends, and what it never touches."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from redrive import policy
from redrive.answers import Advance, Answer, Delivered, Retryable, Unknown
from redrive.message import Attempt, Closed, ParkReason
from redrive.policy import Backoff, Policy, Rules
from redrive.ports import ClaimRequest
from redrive.redact import LONG_TEXT_MAX
from redrive.store.runtime.postgres import PostgresStore
from tests.support import messages as m
from tests.support.verbs import ACT

RULES = Rules(policy=Policy(attempts=3, backoff=Backoff(initial_seconds=30, multiplier=3, jitter="none")))


async def answered(store: PostgresStore, attempt: Attempt, answer: Answer, *, seconds: float) -> None:
    """Settle as a relay would: decide, then write."""
    now = m.at(seconds)
    settlement = policy.decide(attempt, answer, RULES, now=now, random=Random(1))
    settled = await m.settle(store, attempt, settlement, now=now)
    assert settled.settled == 1
    assert await m.conserved(store)


@pytest.mark.req("G-05")
@pytest.mark.req("G-06")
async def test_delivered_message_is_closed_with_one_archive_row(store: PostgresStore) -> None:
    message_id = await m.enqueue(store, headers={"trace": "1"})
    attempt = await m.claim(store, now=m.at(5))
    assert (attempt.payload, attempt.headers, attempt.number) == ({"order": 1}, {"trace": "1"}, 1)
    await answered(store, attempt, Delivered(reference="mail-7"), seconds=6)
    (entry,) = await store.history(message_id)
    assert (entry.attempt, entry.verb, entry.settlement, entry.closed) == (1, "settle", "close", "delivered")
    assert (entry.reference, entry.claimed_at, entry.completed_at) == ("mail-7", m.at(5), m.at(6))
    assert (entry.worker, entry.spent, entry.latency_ms) == (m.WORKER, 1, 5)


@pytest.mark.req("G-05")
async def test_result_of_a_delivery_is_kept_in_the_archive(store: PostgresStore) -> None:
    message_id = await m.enqueue(store)
    await answered(store, await m.claim(store), Delivered(result={"total": [1, 2]}), seconds=1)
    (entry,) = await store.history(message_id)
    assert (entry.result, entry.closed) == ({"total": [1, 2]}, "delivered")


@pytest.mark.req("G-06")
async def test_claim_is_seen_as_dispatching_while_it_lasts(store: PostgresStore) -> None:
    message_id = await m.enqueue(store)
    attempt = await m.claim(store)
    query = "SELECT attempt, code, completed_at FROM redrive.history WHERE message_id = %s"
    assert await store.rows(query, [message_id]) == [(1, "DISPATCHING", None)]
    await answered(store, attempt, Delivered(), seconds=1)
    assert await store.rows(query, [message_id]) == [(1, None, m.at(1))]


@pytest.mark.req("G-11")
async def test_retried_message_waits_for_its_delay(store: PostgresStore) -> None:
    message_id = await m.enqueue(store)
    await answered(store, await m.claim(store), Retryable("HTTP_503", "busy"), seconds=10)
    (entry,) = await store.history(message_id)
    assert (entry.settlement, entry.code, entry.due_at) == ("retry", "HTTP_503", m.at(40))
    assert (await m.claim_all(store, now=m.at(39.999))).attempts == []
    again = await m.claim(store, now=m.at(40))
    assert (again.number, again.spent, again.first_failed_at) == (2, 1, m.at(10))
    assert [e.code for e in again.history()] == ["HTTP_503"]


@pytest.mark.req("G-12")
async def test_exhausted_budget_dead_letters(store: PostgresStore) -> None:
    message_id = await m.enqueue(store)
    for seconds in (0, 1_000, 2_000):
        attempt = await m.claim(store, now=m.at(seconds))
        await answered(store, attempt, Retryable("HTTP_503"), seconds=seconds)
    assert await m.state_of(store, message_id) == "parked·dead"
    parked = await m.row(store, "parked", message_id)
    assert (parked["error_class"], parked["exhausted"], parked["spent"]) == ("HTTP_503", True, 3)
    assert [e.settlement for e in await store.history(message_id)] == ["retry", "retry", "park"]


@pytest.mark.req("G-12")
async def test_attempt_is_dense_and_never_reset_while_requeue_resets_spent(store: PostgresStore) -> None:
    message_id = await m.enqueue(store, key="order:1")
    first = await m.claim(store)
    await store.hand_back(m.WORKER, [first.fence], now=m.at(1))
    await answered(store, await m.claim(store, now=m.at(2)), Retryable("HTTP_503"), seconds=2)
    await m.settle(store, await m.claim(store, now=m.at(100)), m.park(spent=2), now=m.at(100))
    await store.requeue(message_id, **ACT, now=m.at(200))
    again = await m.claim(store, now=m.at(200))
    assert (again.number, again.spent, again.lookups, again.crashes) == (4, 0, 0, 0)
    assert (again.id, again.key, again.token) == (message_id, "order:1", first.token)
    await answered(store, again, Delivered(), seconds=201)
    numbers = [e.attempt for e in await store.history(message_id) if e.verb in ("settle", "hand_back")]
    assert numbers == [1, 2, 3, 4]


@pytest.mark.req("G-12")
async def test_requeue_starts_at_the_failed_stage_or_at_the_one_asked_for(store: PostgresStore) -> None:
    message_id = await m.enqueue(store)
    await m.settle(store, await m.claim(store), m.advance("second"))
    await m.settle(store, await m.claim(store), m.park())
    await store.requeue(message_id, **ACT, now=m.START)
    attempt = await m.claim(store)
    assert attempt.stage == "second"
    await m.settle(store, attempt, m.park())
    await store.requeue(message_id, **ACT, stage="first", now=m.START)
    assert (await m.claim(store)).stage == "first"


@pytest.mark.req("G-12")
async def test_advance_keeps_the_message_and_starts_a_fresh_budget(store: PostgresStore) -> None:
    message_id = await m.enqueue(store, key="order:1")
    await answered(store, await m.claim(store), Retryable("HTTP_503"), seconds=0)
    attempt = await m.claim(store, now=m.at(100))
    await answered(store, attempt, Advance("charge", result={"ok": True}), seconds=100)
    second = await m.claim(store, now=m.at(100))
    assert (second.id, second.key, second.stage, second.number) == (message_id, "order:1", "charge", 3)
    assert (second.spent, second.first_failed_at, second.in_doubt) == (0, None, False)
    assert second.results() == {"first": {"ok": True}}
    assert second.token != attempt.token


@pytest.mark.req("G-12")
async def test_advance_may_go_to_another_destination(store: PostgresStore) -> None:
    message_id = await m.enqueue(store)
    await answered(store, await m.claim(store), Advance("mail", destination="mailer"), seconds=0)
    assert (await m.claim_all(store)).attempts == []
    assert (await m.row(store, "pending", message_id))["destination"] == "mailer"


@pytest.mark.req("G-09")
async def test_hand_back_spends_nothing(store: PostgresStore) -> None:
    message_id = await m.enqueue(store)
    await answered(store, await m.claim(store), Unknown("READ_TIMEOUT"), seconds=0)
    before = await m.row(store, "pending", message_id)
    attempt = await m.claim(store, now=m.at(100))
    assert await store.hand_back(m.WORKER, [attempt.fence], now=m.at(100)) == [attempt.fence]
    after = await m.row(store, "pending", message_id)
    assert after == {**before, "attempt": 2}


@pytest.mark.req("G-09")
async def test_hand_back_by_another_worker_changes_nothing(store: PostgresStore) -> None:
    message_id = await m.enqueue(store)
    attempt = await m.claim(store)
    assert await store.hand_back(m.OTHER_WORKER, [attempt.fence], now=m.at(1)) == []
    assert await m.state_of(store, message_id) == "leased"


@pytest.mark.req("G-24")
async def test_message_is_not_claimed_before_it_is_due(store: PostgresStore) -> None:
    await m.enqueue(store, due_at=m.at(60))
    assert (await m.claim_all(store, now=m.at(59))).attempts == []
    assert (await m.claim(store, now=m.at(60))).number == 1


@pytest.mark.req("G-25")
async def test_paused_destination_is_not_claimed_until_it_is_resumed(store: PostgresStore) -> None:
    message_id = await m.enqueue(store)
    assert await store.pause(m.DESTINATION, **ACT, now=m.START)
    assert not await store.pause(m.DESTINATION, **ACT, now=m.START)
    assert (await m.claim_all(store)).attempts == []
    assert (await m.row(store, "pending", message_id))["spent"] == 0
    assert await store.resume(m.DESTINATION, **ACT, now=m.START)
    assert (await m.claim(store)).id == message_id


@pytest.mark.req("G-06")
async def test_claim_takes_no_more_than_the_room_of_each_level(store: PostgresStore) -> None:
    for level in (0, 0, 1, 1, 2):
        await m.enqueue(store, level=level)
    claim_requests = [
        ClaimRequest(m.DESTINATION, 0, 1),
        ClaimRequest(m.DESTINATION, 1, 5),
        ClaimRequest("elsewhere", 2, 5),
    ]
    claimed = await store.claim(m.WORKER, claim_requests, lease_seconds=60, now=m.START)
    assert sorted(a.level for a in claimed.attempts) == [0, 1, 1]


@pytest.mark.req("G-05")
@pytest.mark.parametrize("nasty", ["nul \x00 inside", "lone \ud800 surrogate", "bell \x07", "x" * 70_000, "ünï©ødé 🚚"])
async def test_outcome_can_always_be_recorded_whatever_its_text(store: PostgresStore, nasty: str) -> None:
    message_id = await m.enqueue(store)
    attempt = await m.claim(store)
    answer = Retryable(code=nasty, text=nasty)
    settlement = policy.decide(attempt, answer, RULES, now=m.START, random=Random(1))
    settled = await m.settle(store, attempt, settlement, text=nasty)
    assert settled.settled == 1
    (entry,) = await store.history(message_id)
    assert entry.text is not None
    assert len(entry.text) <= LONG_TEXT_MAX


@pytest.mark.req("G-05")
async def test_reference_that_is_too_long_or_odd_is_made_storable(store: PostgresStore) -> None:
    message_id = await m.enqueue(store)
    await answered(store, await m.claim(store), Delivered(reference="\x00" + "r" * 600), seconds=0)
    (entry,) = await store.history(message_id)
    assert entry.reference == "\N{REPLACEMENT CHARACTER}" + "r" * 499


@pytest.mark.req("G-28")
async def test_every_closing_verb_writes_exactly_one_closing_row(store: PostgresStore) -> None:
    ids: dict[Closed, Any] = {closed: await m.enqueue(store, destination=closed) for closed in Closed}
    ids.pop(Closed.SKIPPED)
    by_name = {a.destination: a for name in ids for a in await _claimed(store, name)}
    await m.settle(store, by_name["delivered"], m.close())
    await m.settle(store, by_name["expired"], m.close(closed=Closed.EXPIRED))
    await store.cancel(ids[Closed.CANCELLED], now=m.START)
    await m.settle(store, by_name["cancelled"], m.retry())
    await m.settle(store, by_name["discarded"], m.park(ParkReason.HELD))
    await store.discard(ids[Closed.DISCARDED], **ACT, now=m.START)
    query = "SELECT message_id, array_agg(closed) FROM redrive.attempt WHERE closed IS NOT NULL GROUP BY 1"
    assert dict(await store.rows(query, [])) == {ids[closed]: [closed] for closed in ids}
    assert await m.conserved(store)


async def _claimed(store: PostgresStore, destination: str) -> Any:
    claim_requests = [ClaimRequest(destination, 1, 10)]
    return (await store.claim(m.WORKER, claim_requests, lease_seconds=60, now=m.START)).attempts
