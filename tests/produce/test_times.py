"""Delay and expiry: kept at enqueue, obeyed at claim, judged by the database's clock (G-24, ruling 6)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from redrive.errors import InvalidValue
from redrive.store.runtime.postgres import PostgresStore
from tests.support import messages as m
from tests.support.doors import Producer

pytestmark = pytest.mark.req("G-24")

PAST = datetime(2001, 1, 1, tzinfo=UTC)
FAR = datetime(2090, 1, 1, 12, tzinfo=UTC)


async def test_a_delayed_message_is_not_claimed_before_it_is_due(producer: Producer, store: PostgresStore) -> None:
    receipt = await producer.enqueue(m.DESTINATION, 1, due_at=m.at(100))
    await producer.commit()
    assert not (await m.claim_all(store, now=m.at(99))).attempts
    assert (await m.claim(store, now=m.at(100))).id == receipt.id


async def test_a_message_that_was_due_in_the_past_is_due_now(producer: Producer) -> None:
    await producer.enqueue(m.DESTINATION, 1, due_at=PAST)
    assert await producer.rows("SELECT due_at BETWEEN now() AND clock_timestamp() FROM redrive.pending") == [(True,)]


async def test_a_message_is_sent_before_it_expires_and_closed_afterwards(
    producer: Producer, store: PostgresStore
) -> None:
    sent = await producer.enqueue(m.DESTINATION, 1, expires_at=m.at(100))
    late = await producer.enqueue(m.DESTINATION, 2, expires_at=m.at(100), due_at=m.at(50))
    await producer.commit()
    assert (await m.claim(store, now=m.at(49))).id == sent.id
    claimed = await m.claim_all(store, now=m.at(100))
    assert (list(claimed.attempts), claimed.expired) == ([], 1)
    assert await m.state_of(store, late.id) == "expired"


async def test_a_moment_means_the_same_in_every_time_zone(producer: Producer) -> None:
    await producer.rows("SET TIME ZONE 'Asia/Kolkata'")
    east = FAR.astimezone(timezone(timedelta(hours=9, minutes=30)))
    await producer.enqueue("mail", 1, due_at=east, expires_at=FAR + timedelta(microseconds=1))
    query = "SELECT due_at = %s, expires_at = %s FROM redrive.pending"
    assert await producer.rows(query, FAR, FAR + timedelta(microseconds=1)) == [(True, True)]


@pytest.mark.req("G-19")
async def test_a_past_expiry_is_refused_and_the_transaction_stays_usable(producer: Producer) -> None:
    await producer.enqueue("mail", "before", key="before")
    with pytest.raises(InvalidValue, match=r"expires_at is 2001-01-01 .* has passed by the database's clock"):
        await producer.enqueue("mail", 1, key="k", expires_at=PAST)
    await producer.enqueue("mail", "after", key="k")
    await producer.commit()
    assert await producer.rows("SELECT key FROM redrive.message ORDER BY id") == [("before",), ("k",)]


@pytest.mark.req("G-19")
async def test_expiry_is_compared_with_the_databases_clock_not_with_ours(producer: Producer) -> None:
    (database_now,) = (await producer.rows("SELECT clock_timestamp()"))[0]
    await producer.enqueue("mail", 1, expires_at=database_now + timedelta(minutes=1))
    with pytest.raises(InvalidValue):
        await producer.enqueue("mail", 1, expires_at=database_now)
    assert await producer.rows("SELECT count(*) FROM redrive.message") == [(1,)]


async def test_a_duplicate_of_an_expired_message_must_still_have_a_future_expiry(producer: Producer) -> None:
    await producer.enqueue("mail", 1, key="k")
    with pytest.raises(InvalidValue):
        await producer.enqueue("mail", 1, key="k", expires_at=PAST)
    assert (await producer.enqueue("mail", 1, key="k", expires_at=FAR)).already_existed
