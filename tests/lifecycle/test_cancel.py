"""Cancel says the truth (ruling 14): the flag travels with the message until no further attempt can follow."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from redrive import policy
from redrive.errors import NotFound
from redrive.message import Attempt, CancelAnswer, Closed, MessageId, ParkReason
from redrive.policy import Opening, Rules, Settlement
from redrive.store.runtime.postgres import PostgresStore
from tests.support import messages as m
from tests.support.situations import NOBODY, reach
from tests.support.verbs import ACT

pytestmark = pytest.mark.req("G-24")


async def in_flight(store: PostgresStore) -> Attempt:
    """A message that was cancelled while somebody had it in hand."""
    await m.enqueue(store)
    attempt = await m.claim(store)
    assert await store.cancel(attempt.id, now=m.at(1)) is CancelAnswer.IN_FLIGHT
    return attempt


async def test_pending_message_is_cancelled_at_once_and_never_claimed(store: PostgresStore) -> None:
    message_id = await m.enqueue(store)
    assert await store.cancel(message_id, now=m.at(1)) is CancelAnswer.CANCELLED
    assert (await m.claim_all(store, now=m.at(1))).attempts == []
    (entry,) = await store.history(message_id)
    assert (entry.verb, entry.closed, entry.actor, entry.attempt) == ("cancel", "cancelled", None, 0)
    assert await store.cancel(message_id, now=m.at(2)) is CancelAnswer.ALREADY_CLOSED


@pytest.mark.parametrize("reason", list(ParkReason))
async def test_parked_message_is_not_cancelled_but_said_to_be_parked(store: PostgresStore, reason: ParkReason) -> None:
    situation = await reach(store, f"parked·{reason}")
    assert await store.cancel(situation.id, now=situation.now) is CancelAnswer.PARKED
    assert await m.state_of(store, situation.id) == f"parked·{reason}"


async def test_message_that_nobody_knows_is_not_found(store: PostgresStore) -> None:
    with pytest.raises(NotFound, match=str(NOBODY)):
        await store.cancel(NOBODY, now=m.at(1))


async def test_cancel_in_flight_lets_a_delivery_stand(store: PostgresStore) -> None:
    attempt = await in_flight(store)
    await m.settle(store, attempt, m.close(), now=m.at(2))
    assert await m.state_of(store, attempt.id) == "delivered"


@pytest.mark.parametrize("settlement", [m.retry(), m.advance()], ids=["retry", "advance"])
async def test_cancel_in_flight_ends_what_would_be_tried_again(store: PostgresStore, settlement: Settlement) -> None:
    attempt = await in_flight(store)
    await m.settle(store, attempt, settlement, now=m.at(2))
    assert await m.state_of(store, attempt.id) == "cancelled"
    assert (await m.claim_all(store, now=m.at(2))).attempts == []
    assert await m.conserved(store)


async def test_cancel_in_flight_ends_a_claim_that_is_handed_back(store: PostgresStore) -> None:
    attempt = await in_flight(store)
    assert await store.hand_back(m.WORKER, [attempt.fence], now=m.at(2)) == [attempt.fence]
    (entry,) = await store.history(attempt.id)
    assert (entry.verb, entry.closed, entry.spent) == ("hand_back", "cancelled", 0)


async def test_cancel_travels_through_a_retry_in_doubt(store: PostgresStore) -> None:
    attempt = await in_flight(store)
    await m.settle(store, attempt, m.retry(in_doubt=True), now=m.at(2))
    again = await m.claim(store, now=m.at(2))
    assert (again.cancel_requested, again.in_doubt) == (True, True)


async def test_cancel_travels_through_reap(store: PostgresStore) -> None:
    attempt = await in_flight(store)
    await store.reap(limit=10, now=m.at(100))
    again = await m.claim_suspect(store, now=m.at(100))
    assert (again.id, again.cancel_requested, again.in_doubt) == (attempt.id, True, True)


async def test_cancel_travels_through_hand_back_of_a_claim_in_doubt(store: PostgresStore) -> None:
    attempt = await in_flight(store)
    await store.reap(limit=10, now=m.at(100))
    suspect = await m.claim_suspect(store, now=m.at(100))
    await store.hand_back(m.OTHER_WORKER, [suspect.fence], now=m.at(101))
    assert await m.state_of(store, attempt.id) == "pending"
    assert (await m.claim_suspect(store, now=m.at(101))).cancel_requested


async def test_cancel_of_a_message_in_doubt_brings_its_lookup_forward(store: PostgresStore) -> None:
    message_id = await m.enqueue(store)
    await m.settle(store, await m.claim(store), m.retry(in_doubt=True, delay_seconds=3_600))
    assert await store.cancel(message_id, now=m.at(5)) is CancelAnswer.IN_DOUBT
    attempt = await m.claim(store, now=m.at(5))
    assert attempt.cancel_requested
    assert policy.opening(attempt, Rules(in_doubt="lookup"), now=m.at(5)) is Opening.LOOK_UP
    absent = policy.after_absent(attempt, Rules(in_doubt="lookup"), now=m.at(5))
    assert isinstance(absent, Settlement)
    assert absent.closed is Closed.CANCELLED


async def test_cancelled_message_in_doubt_is_not_sent_again_where_nothing_can_be_asked(store: PostgresStore) -> None:
    attempt = await in_flight(store)
    await m.settle(store, attempt, m.retry(in_doubt=True), now=m.at(2))
    again = await m.claim(store, now=m.at(2))
    settlement = policy.opening(again, Rules(in_doubt="resend"), now=m.at(2))
    assert isinstance(settlement, Settlement)
    await m.settle(store, again, settlement, now=m.at(3))
    assert await m.state_of(store, attempt.id) == "cancelled"
    closing = await store.rows("SELECT closed, in_doubt, answer FROM redrive.attempt WHERE attempt = 2", [])
    assert closing == [("cancelled", True, None)]


async def test_message_whose_answer_is_kept_is_recorded_whatever_is_cancelled(store: PostgresStore) -> None:
    message_id = await _repaired(store)
    assert await store.cancel(message_id, now=m.at(20)) is CancelAnswer.IN_FLIGHT
    attempt = await m.claim(store, now=m.at(20))
    assert policy.opening(attempt, Rules(), now=m.at(20)) is Opening.RECORD
    await m.settle(store, attempt, m.close(), now=m.at(21))
    assert await m.state_of(store, message_id) == "delivered"


async def test_message_whose_answer_is_kept_does_not_expire(store: PostgresStore) -> None:
    message_id = await _repaired(store, expires_at=m.at(15))
    assert await store.expire(limit=10, now=m.at(20)) == 0
    attempt = await m.claim(store, now=m.at(20))
    assert (attempt.id, attempt.expired) == (message_id, True)
    assert policy.opening(attempt, Rules(), now=m.at(20)) is Opening.RECORD


async def _repaired(store: PostgresStore, **values: Any) -> MessageId:
    message_id = await m.enqueue(store, **values)
    await m.settle(store, await m.claim(store), m.park(ParkReason.UNRECORDED), now=m.at(10))
    await store.repair(message_id, **ACT, now=m.at(10))
    return message_id


@pytest.mark.parametrize("state", ["pending", "leased"])
async def test_cancel_waits_a_second_for_whoever_holds_the_row_and_then_says_busy(
    store: PostgresStore, database: str, state: str
) -> None:
    situation = await reach(store, state)
    table = "pending" if state == "pending" else "lease"
    async with await psycopg.AsyncConnection.connect(database) as other:
        await other.execute(f"SELECT 1 FROM redrive.{table} WHERE id = %s FOR UPDATE".encode(), [situation.id])
        assert await store.cancel(situation.id, **ACT, now=situation.now) is CancelAnswer.BUSY
    assert await m.state_of(store, situation.id) == state
    assert await store.rows("SELECT count(*) FROM redrive.operator_action", []) == [(0,)]
