"""Ranges are made ahead and retired whole, only when nothing in them is open (ruling 17)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from redrive.errors import NotFound
from redrive.message import MessageId, NewMessage
from tests.conformance.steps import ACT, ALICE, MAIL, claim_one, delivered, parked, settle
from tests.conformance.subjects import Subject
from tests.model_store.tables import Conservation

pytestmark = pytest.mark.req("G-22")

WEEK_SECONDS = 7 * 86_400.0
RETIRE_TRIES = 600
LONG_AFTER = datetime(2100, 1, 1, tzinfo=UTC)  # every range of these tests has ended by then


@pytest.fixture
def subject_dsn(database: str) -> str:
    """A range that was dropped does not come back."""
    return database


@pytest.mark.req("G-33")
async def test_nothing_is_retired_for_a_day_after_the_clock_was_set_forward(store: Subject) -> None:
    start = await this_range(store)
    forward = 30 * 86_400.0
    before = LONG_AFTER - timedelta(hours=23)
    await store.clock_jumped(ALICE, era=0, offset_seconds=forward, window_seconds=5, now=before)
    assert await store.retire(start, now=LONG_AFTER) == "young"
    for _ in range(RETIRE_TRIES):
        if (answer := await store.retire(start, now=LONG_AFTER + timedelta(hours=2))) != "young":
            break
        await asyncio.sleep(0.05)
    assert answer == "retired"


async def this_range(store: Subject) -> datetime:
    """Start of the range that new ids fall into."""
    clock = store.clock()
    return next(start for start, end in await store.ranges() if start <= clock < end)


async def retire(store: Subject, starts_at: datetime) -> str:
    """A vacuum of the server's own may have a transaction open for a moment: then it is asked again."""
    for _ in range(RETIRE_TRIES):
        answer = await store.retire(starts_at, now=LONG_AFTER)
        if answer != "young":
            break
        await asyncio.sleep(0.05)
    return answer


def enqueue_now(store: Subject) -> MessageId:
    return store.enqueue(NewMessage(MAIL, {"n": 1}, key="k")).id


async def test_a_new_store_has_this_week_and_four_ahead(store: Subject) -> None:
    ranges = await store.ranges()
    assert len(ranges) == 5
    assert ranges[0][0] <= store.clock() < ranges[0][1]
    assert all(end - start == timedelta(seconds=WEEK_SECONDS) for start, end in ranges)
    assert all(one[1] == next_one[0] for one, next_one in pairwise(ranges))


async def test_ranges_are_made_ahead_from_where_they_end_and_only_once(store: Subject) -> None:
    clock = store.clock()
    before = await store.ranges()
    assert await store.make_partitions(width_seconds=WEEK_SECONDS, ahead=4, now=clock) == 0
    assert await store.make_partitions(width_seconds=WEEK_SECONDS, ahead=6, now=clock) == 2
    assert await store.make_partitions(width_seconds=WEEK_SECONDS, ahead=6, now=clock) == 0
    ranges = await store.ranges()
    assert ranges[:5] == before
    assert ranges[5][0] == before[-1][1]


async def test_ranges_may_get_another_width(store: Subject) -> None:
    last = (await store.ranges())[-1][1]
    await store.make_partitions(width_seconds=86_400, ahead=1, now=last)
    assert (await store.ranges())[-2:] == [
        (last, last + timedelta(days=1)),
        (last + timedelta(days=1), last + timedelta(days=2)),
    ]


async def test_a_range_that_does_not_exist_is_none(store: Subject) -> None:
    assert await store.retire(store.clock()) == "none"


async def test_a_range_with_an_open_message_is_not_retired(store: Subject) -> None:
    start = await this_range(store)
    id = enqueue_now(store)
    assert await retire(store, start) == "open"
    attempt = await claim_one(store, now=store.clock())
    assert await retire(store, start) == "open"
    await settle(store, parked(attempt), now=store.clock())
    assert await retire(store, start) == "open"
    assert store.state_of(id) == "parked"
    assert start in [one for one, _ in await store.ranges()]


async def test_a_range_younger_than_the_oldest_open_transaction_is_not_retired(store: Subject) -> None:
    start = await this_range(store)
    with store.open_transaction():
        assert await store.retire(start, now=LONG_AFTER) == "young"
    assert await retire(store, start) == "retired"


async def test_a_range_that_has_not_ended_is_not_retired(store: Subject) -> None:
    assert await store.retire(await this_range(store), now=store.clock()) == "young"


@pytest.mark.req("G-02")
async def test_a_retired_range_takes_its_messages_and_their_history_but_not_the_keys(store: Subject) -> None:
    start = await this_range(store)
    id = enqueue_now(store)
    await settle(store, delivered(await claim_one(store, now=store.clock())), now=store.clock())
    assert await retire(store, start) == "retired"
    assert (store.state_of(id), await store.history(id)) == (None, [])
    assert store.conservation() == Conservation(0, 0, 0, 0, 0)
    assert start not in [one for one, _ in await store.ranges()]
    again = store.enqueue(NewMessage(MAIL, {"n": 1}, key="k"))
    assert (again.id, again.already_existed, again.state) == (id, True, "closed")
    with pytest.raises(NotFound):
        await store.cancel(id)
    with pytest.raises(NotFound):
        await store.requeue(id, **ACT, now=store.clock())


async def test_a_message_of_another_range_does_not_keep_a_range_open(store: Subject) -> None:
    enqueue_now(store)
    later = (await store.ranges())[3][0]
    assert await retire(store, later) == "retired"
    assert len(await store.ranges()) == 4
