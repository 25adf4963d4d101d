"""Failure groups: failures of one cause are one thing, whoever counted them, and nobody waits for the count."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from redrive.errors import InvalidValue, NotFound
from redrive.events import Events
from redrive.message import ParkReason
from redrive.operate.desk import groups
from redrive.operate.desk.groups import Mark, Marking
from redrive.recover.engine_duties import fold_failures
from redrive.store.reads.models import GroupFilter, GroupStatus, GroupView
from redrive.store.runtime.postgres import PostgresStore
from tests.desk.failing import ACT, dead, fail_again
from tests.support import messages as m

pytestmark = pytest.mark.req("G-16")

ALL = GroupFilter()


async def listed(store: PostgresStore, *, now: Any = m.START) -> list[GroupView]:
    return list((await groups.list_groups(store, ALL, now=now)).rows)


async def only(store: PostgresStore, *, now: Any = m.START) -> GroupView:
    (group,) = await listed(store, now=now)
    return group


async def say(store: PostgresStore, mark: Mark, *, now: Any = m.START, **values: Any) -> GroupView:
    return await groups.mark(store, (await only(store, now=now)).id, Marking(mark=mark, **ACT, **values), now=now)


async def test_failures_of_four_causes_are_four_groups(store: PostgresStore) -> None:
    await dead(store, count=3)
    await dead(store, count=2, error_class="HTTP_403")
    await dead(store, count=2, text="amount is missing")
    await dead(store, count=1, kind="invoice.sent")
    assert sorted(group.seen for group in await listed(store)) == [1, 2, 2, 3]
    assert sum(group.waiting for group in await listed(store)) == 8


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("row 17 of 40", "row 3 of 4", True),
        ("Customer is unknown", "customer is unknown", True),
        (None, "", True),
        ("customer is unknown", "supplier is unknown", False),
    ],
)
async def test_numbers_and_case_do_not_make_another_group(
    store: PostgresStore, one: str | None, other: str | None, same: bool
) -> None:
    await dead(store, text=one)
    await dead(store, text=other)
    assert (len(await listed(store)) == 1) == same


async def test_the_count_is_the_same_before_and_after_the_fold(store: PostgresStore) -> None:
    await dead(store, count=3, now=m.at(1))
    before = await only(store)
    assert await fold_failures(store, events=Events()) == "3 counted"
    assert await only(store) == before
    await dead(store, count=2, now=m.at(9))
    both = await only(store)
    assert (both.seen, both.first_seen_at, both.last_seen_at) == (5, m.at(1), m.at(9))
    assert await fold_failures(store, events=Events()) == "2 counted"
    assert await only(store) == both
    assert await fold_failures(store, events=Events()) == "0 counted"


async def test_a_fold_takes_no_more_than_its_batch(store: PostgresStore) -> None:
    await dead(store, count=5)
    assert [await store.fold_failures(limit=2) for _ in range(4)] == [2, 2, 1, 0]
    assert (await only(store)).seen == 5


async def test_two_folds_at_once_count_every_failure_once(store: PostgresStore) -> None:
    await dead(store, count=4)
    async with store.connection() as conn, conn.transaction():
        await conn.execute("SELECT redrive.fold_failures_1(2)")
        other = asyncio.create_task(store.fold_failures(limit=10))  # it takes the rest, and waits for the group
        await blocked(store)
    assert await other == 2, "what another fold holds is left to it"
    assert (await only(store)).seen == 4


async def blocked(store: PostgresStore) -> None:
    """Until some statement waits for a lock."""
    async with asyncio.timeout(20):
        while not (await store.rows("SELECT count(*) FROM pg_locks WHERE NOT granted", []))[0][0]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_parking_waits_for_nobody_who_holds_the_group(store: PostgresStore) -> None:
    """A settle in an application's own long transaction (complete) must not hold up the relays."""
    await dead(store)
    await store.fold_failures(limit=10)
    async with store.connection() as conn, conn.transaction():
        await conn.execute("SELECT 1 FROM redrive.failure_group FOR UPDATE")
        await dead(store, count=2)
    assert (await only(store)).seen == 3


async def test_a_delivery_or_a_retry_leaves_no_trace_in_the_tally(store: PostgresStore) -> None:
    await m.enqueue(store)
    await m.settle(store, await m.claim(store), m.retry())
    await m.settle(store, await m.claim(store), m.close())
    assert await listed(store) == []


@pytest.mark.parametrize("reason", ParkReason)
async def test_every_parked_message_knows_its_group(store: PostgresStore, reason: ParkReason) -> None:
    (message_id,) = await dead(store, reason=reason)
    row = await m.row(store, "parked", message_id)
    assert row["failure_group"] == f"\\x{(await only(store)).id}"


async def test_an_outcome_that_is_refused_counts_nothing(store: PostgresStore) -> None:
    await m.enqueue(store)
    lost = await m.claim(store)
    await store.hand_back(m.WORKER, [lost.fence])
    assert (await m.settle(store, lost, m.park())).refused
    assert await listed(store) == []


async def test_one_failure_after_its_resolution_makes_a_group_regressed(store: PostgresStore) -> None:
    await dead(store, now=m.at(1))
    assert (await say(store, "resolve", now=m.at(2))).status is GroupStatus.RESOLVED
    await dead(store, now=m.at(3))
    assert (await only(store, now=m.at(3))).status is GroupStatus.REGRESSED
    await store.fold_failures(limit=10)
    assert (await only(store, now=m.at(3))).status is GroupStatus.REGRESSED
    assert (await say(store, "resolve", now=m.at(4))).status is GroupStatus.RESOLVED


async def test_failures_from_before_its_resolution_do_not_reopen_a_group(store: PostgresStore) -> None:
    await dead(store, now=m.at(1))
    assert (await say(store, "resolve", now=m.at(2))).seen == 1
    assert (await only(store, now=m.at(3))).status is GroupStatus.RESOLVED


async def test_a_snooze_ends_by_itself_and_ignoring_does_not(store: PostgresStore) -> None:
    await dead(store)
    await say(store, "snooze", snooze=timedelta(seconds=60))
    assert (await only(store, now=m.at(59))).status is GroupStatus.SNOOZED
    assert (await only(store, now=m.at(60))).status is GroupStatus.OPEN
    await say(store, "ignore", now=m.at(61))
    await dead(store, now=m.at(10_000))
    ignored = await only(store, now=m.at(20_000))
    assert (ignored.status, ignored.seen, ignored.snoozed_until) == (GroupStatus.IGNORED, 2, None)
    assert (await say(store, "reopen", now=m.at(20_000))).status is GroupStatus.OPEN


async def test_owner_and_note_are_kept_whatever_the_status(store: PostgresStore) -> None:
    await dead(store)
    await say(store, "assign", value="grace")
    await say(store, "note", value="waits for INC-7")
    group = await say(store, "resolve")
    assert (group.owner, group.note) == ("grace", "waits for INC-7")


async def test_what_is_said_of_a_group_is_audited_with_before_and_after(store: PostgresStore) -> None:
    await dead(store, count=2)
    group = await say(store, "resolve")
    ((act, actor, subject, before, after),) = await store.rows(
        "SELECT act, actor, subject, before, after FROM redrive.operator_action", []
    )
    assert (act, actor, subject) == ("resolve", "ada", f"group {group.id}")
    assert (before["status"], after["status"], after["seen"]) == ("open", "resolved", 2)


async def test_waiting_counts_what_is_parked_now(store: PostgresStore) -> None:
    ids = await dead(store, count=3)
    await store.discard(ids[0], **ACT)
    await store.requeue(ids[1], **ACT, now=m.START)
    group = await only(store)
    assert (group.seen, group.waiting) == (3, 1)
    await fail_again(store, now=m.at(5))
    group = await only(store)
    assert (group.seen, group.waiting) == (4, 2)


async def test_pages_of_groups_follow_each_other(store: PostgresStore) -> None:
    for number in range(5):
        await dead(store, error_class=f"CODE_{'ABCDE'[number]}", now=m.at(number))
    seen: list[str] = []
    position = None
    while True:
        page = await groups.list_groups(store, GroupFilter(before=position, limit=2), now=m.at(9))
        seen += [group.error_class for group in page.rows]
        position = page.next
        if position is None:
            break
    assert seen == ["CODE_E", "CODE_D", "CODE_C", "CODE_B", "CODE_A"]


async def test_a_group_is_found_by_the_beginning_of_its_id(store: PostgresStore) -> None:
    await dead(store)
    group = await only(store)
    assert await groups.find_group(store, group.id[:8].upper(), now=m.START) == group
    with pytest.raises(NotFound):
        await groups.find_group(store, "ffff" if not group.id.startswith("ffff") else "eeee")
    for wrong in ("abc", "xyz123", ""):
        with pytest.raises(InvalidValue):
            await groups.find_group(store, wrong)


@pytest.mark.req("G-19")
@pytest.mark.parametrize(
    "values",
    [
        {"mark": "delete"},
        {"mark": "snooze"},
        {"mark": "snooze", "snooze": timedelta(0)},
        {"mark": "snooze", "snooze": timedelta(days=91)},
        {"mark": "note", "value": ""},
        {"mark": "note", "value": "x" * 501},
    ],
    ids=str,
)
def test_what_cannot_be_said_of_a_group_is_refused_at_once(values: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        Marking(**{**ACT, **values})
