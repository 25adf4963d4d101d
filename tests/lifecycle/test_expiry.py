"""Expiry is checked at claim and by a duty; what is in doubt is looked up first."""

from __future__ import annotations

import pytest

from redrive import policy
from redrive.policy import Opening, Rules, Settlement
from redrive.store.runtime.postgres import PostgresStore
from tests.support import messages as m
from tests.support.verbs import ACT

pytestmark = pytest.mark.req("G-24")


async def test_expired_message_is_closed_at_claim_and_not_handed_out(store: PostgresStore) -> None:
    message_id = await m.enqueue(store, expires_at=m.at(60))
    claimed = await m.claim_all(store, now=m.at(60))
    assert (claimed.attempts, claimed.expired) == ([], 1)
    (entry,) = await store.history(message_id)
    assert (entry.verb, entry.closed, entry.attempt, entry.completed_at) == ("expire", "expired", 0, m.at(60))
    assert await m.conserved(store)


async def test_message_is_still_handed_out_just_before_it_expires(store: PostgresStore) -> None:
    await m.enqueue(store, expires_at=m.at(60))
    assert (await m.claim(store, now=m.at(59.999))).expired is False


async def test_duty_closes_expired_messages_of_a_paused_destination(store: PostgresStore) -> None:
    message_id = await m.enqueue(store, expires_at=m.at(60))
    await store.pause(m.DESTINATION, **ACT, now=m.START)
    assert (await m.claim_all(store, now=m.at(60))).expired == 0
    assert await store.expire(limit=10, now=m.at(59)) == 0
    assert await store.expire(limit=10, now=m.at(60)) == 1
    assert await m.state_of(store, message_id) == "expired"
    assert await m.conserved(store)


async def test_duty_takes_no_more_than_its_limit_and_is_safe_to_run_twice(store: PostgresStore) -> None:
    for _ in range(3):
        await m.enqueue(store, expires_at=m.at(60))
    assert [await store.expire(limit=2, now=m.at(60)) for _ in range(3)] == [2, 1, 0]
    assert await m.conserved(store)


async def test_message_that_expires_while_leased_may_still_be_delivered(store: PostgresStore) -> None:
    message_id = await m.enqueue(store, expires_at=m.at(60))
    attempt = await m.claim(store, now=m.at(50))
    assert await store.expire(limit=10, now=m.at(70)) == 0
    await m.settle(store, attempt, m.close(), now=m.at(70))
    assert await m.state_of(store, message_id) == "delivered"


async def test_expired_message_in_doubt_is_handed_out_to_be_looked_up(store: PostgresStore) -> None:
    await m.enqueue(store, expires_at=m.at(60))
    await m.settle(store, await m.claim(store), m.retry(in_doubt=True), now=m.at(10))
    assert await store.expire(limit=10, now=m.at(60)) == 0
    attempt = await m.claim(store, now=m.at(60))
    assert (attempt.expired, attempt.in_doubt) == (True, True)
    assert policy.opening(attempt, Rules(in_doubt="lookup"), now=m.at(60)) is Opening.LOOK_UP


async def test_expired_message_that_the_lookup_did_not_find_is_closed_as_expired(store: PostgresStore) -> None:
    message_id = await m.enqueue(store, expires_at=m.at(60))
    await m.settle(store, await m.claim(store), m.retry(in_doubt=True), now=m.at(10))
    attempt = await m.claim(store, now=m.at(60))
    settlement = policy.after_absent(attempt, Rules(in_doubt="lookup"), now=m.at(60))
    assert isinstance(settlement, Settlement)
    await m.settle(store, attempt, settlement, now=m.at(61))
    assert await m.state_of(store, message_id) == "expired"


async def test_expired_suspect_is_handed_out_to_be_looked_up(store: PostgresStore) -> None:
    await m.enqueue(store, expires_at=m.at(90))
    await m.claim(store)
    await store.reap(limit=10, now=m.at(70))
    assert (await m.claim_suspect(store, now=m.at(100))).expired is True


async def test_requeued_message_that_has_expired_is_closed_at_its_next_claim(store: PostgresStore) -> None:
    message_id = await m.enqueue(store, expires_at=m.at(60))
    await m.settle(store, await m.claim(store), m.park(), now=m.at(10))
    await store.requeue(message_id, **ACT, now=m.at(100))
    assert (await m.claim_all(store, now=m.at(100))).expired == 1
    assert await m.state_of(store, message_id) == "expired"
