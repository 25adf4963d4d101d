"""Since when there can be something due: what a mark leaves out, and what it must not (DESIGN §6)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Final

import psycopg
import pytest

from redrive.ports import ClaimRequest, Place
from redrive.store.runtime.postgres import PostgresStore
from tests.support import messages as m

pytestmark = pytest.mark.req("G-08")

NORMAL = Place(m.DESTINATION, 1)
UNDER_WAY = timedelta(milliseconds=300)


async def mark(store: PostgresStore, now: datetime, since: datetime | None = None) -> datetime:
    (found,) = await store.low_water([(NORMAL, since)], now=now)
    assert found.place == NORMAL
    assert found.walked_seconds >= 0
    return found.since


async def claim(store: PostgresStore, now: datetime, since: datetime | None) -> list[object]:
    claim_requests = [ClaimRequest(*NORMAL, 10, since)]
    return [one.id for one in (await store.claim(m.WORKER, claim_requests, lease_seconds=60, now=now)).attempts]


@pytest.mark.parametrize("order_by", [None, "key"])
async def test_the_mark_is_where_the_first_message_is(store: PostgresStore, order_by: str | None) -> None:
    message_id = await m.enqueue(store, order_by=order_by, now=m.at(10))
    await m.enqueue(store, now=m.at(20))
    await m.enqueue(store, destination="mail", now=m.at(1))
    assert await mark(store, m.at(30)) == m.at(10)
    assert message_id in await claim(store, m.at(30), m.at(10))


async def test_where_nothing_waits_it_stays_behind_transactions_that_are_under_way(store: PostgresStore) -> None:
    assert await mark(store, m.at(30)) == m.at(30) - UNDER_WAY
    await m.enqueue(store, due_at=m.at(40), now=m.at(30))
    assert await mark(store, m.at(30)) == m.at(30) - UNDER_WAY


async def test_nothing_before_the_mark_is_looked_at(store: PostgresStore) -> None:
    early = await m.enqueue(store, now=m.at(10))
    late = await m.enqueue(store, now=m.at(20))
    assert await claim(store, m.at(30), m.at(10.000001)) == [late]
    assert await claim(store, m.at(30), None) == [early]


@pytest.mark.parametrize("order_by", [None, "key"])
async def test_what_is_committed_late_with_an_earlier_time_is_found_by_the_next_whole_look(
    store: PostgresStore, order_by: str | None
) -> None:
    await m.enqueue(store, now=m.at(20))
    known = await mark(store, m.at(30))
    late = await m.enqueue(store, order_by=order_by, now=m.at(10))  # began before, commits now
    assert await mark(store, m.at(31), since=known) == known
    assert late not in await claim(store, m.at(31), known)
    whole = await mark(store, m.at(32))
    assert whole == m.at(10)
    assert await claim(store, m.at(32), whole) == [late]


Way = Callable[[PostgresStore, str], Awaitable[object]]


async def _handed_back(store: PostgresStore, _: str) -> object:
    id = await m.enqueue(store, now=m.at(1))
    await store.hand_back(m.WORKER, [(await m.claim(store, now=m.at(2))).fence], now=m.at(20))
    return id


async def _retried(store: PostgresStore, _: str) -> object:
    id = await m.enqueue(store, now=m.at(1))
    await m.settle(store, await m.claim(store, now=m.at(2)), m.retry(), now=m.at(20))
    return id


async def _requeued(store: PostgresStore, _: str) -> object:
    id = await m.enqueue(store, now=m.at(1))
    await m.settle(store, await m.claim(store, now=m.at(2)), m.park(), now=m.at(3))
    await store.requeue(id, actor="ann", reason="again", now=m.at(20))
    return id


async def _enqueued_for_a_time_that_has_passed(store: PostgresStore, _: str) -> object:
    return await m.enqueue(store, due_at=m.at(1), now=m.at(20))


async def _its_key_goes_on(store: PostgresStore, _: str) -> object:
    await m.enqueue(store, order_by="key", now=m.at(1))
    head = await m.claim(store, now=m.at(2))
    id = await m.enqueue(store, order_by="key", now=m.at(3))
    await m.claim_all(store, now=m.at(4))  # drops its token: the key is busy
    await m.settle(store, head, m.close(), now=m.at(20))
    return id


async def _its_token_was_put_back(store: PostgresStore, database: str) -> object:
    id = await m.enqueue(store, order_by="key", now=m.at(1))
    with psycopg.connect(database) as conn:
        conn.execute("SELECT 1 FROM redrive.lane FOR UPDATE")
        assert not (await m.claim_all(store, now=m.at(20))).attempts
    return id


WAYS: Final[dict[str, Way]] = {
    way.__name__.strip("_"): way
    for way in (
        _handed_back,
        _retried,
        _requeued,
        _enqueued_for_a_time_that_has_passed,
        _its_key_goes_on,
        _its_token_was_put_back,
    )
}


@pytest.mark.parametrize("way", WAYS)
async def test_whatever_comes_to_wait_behind_a_mark_is_found_by_the_next_whole_look(
    store: PostgresStore, database: str, way: str
) -> None:
    known = await mark(store, m.at(30))
    id = await WAYS[way](store, database)  # all of it dated before, as by one who commits late
    assert await claim(store, m.at(31), known) == []
    assert await claim(store, m.at(31), await mark(store, m.at(31))) == [id]


async def test_a_clock_that_is_set_back_takes_the_marks_with_it(store: PostgresStore) -> None:
    known = await mark(store, m.at(30))
    id = await m.enqueue(store, now=m.at(10))
    moved = await mark(store, m.at(10), since=known)
    assert moved == m.at(10) - UNDER_WAY
    assert await claim(store, m.at(10), moved) == [id]


@pytest.mark.parametrize("order_by", [None, "key"])
async def test_a_mark_that_is_moved_on_stays_at_what_waits(store: PostgresStore, order_by: str | None) -> None:
    known = await mark(store, m.at(5))
    id = await m.enqueue(store, order_by=order_by, now=m.at(10))
    for seconds in (20, 30, 40):
        known = await mark(store, m.at(seconds), since=known)
        assert known == m.at(10)
    assert await claim(store, m.at(40), known) == [id]
