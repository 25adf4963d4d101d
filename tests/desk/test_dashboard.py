"""What a screen reads beside the lists: that something changed, the traffic, how a group stands, samples."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from redrive.operate.desk import commonalities, groups, replays, workflow
from redrive.operate.desk.causes import Cause
from redrive.store.reads import dashboard
from redrive.store.reads.models import GroupFilter, GroupView
from redrive.store.runtime.postgres import PostgresStore
from redrive.who import Who
from tests.desk.failing import ACT, dead
from tests.support import messages as m

pytestmark = pytest.mark.req("G-21")
WHO = Who(**ACT)


async def the_group(store: PostgresStore) -> GroupView:
    (group,) = (await groups.list_groups(store, GroupFilter())).rows
    return group


async def test_the_steps_of_a_group_are_counted_by_step(store: PostgresStore) -> None:
    ids = await dead(store, count=5)
    await workflow.triage(store, ids[:2], Cause.DATA, WHO)
    steps = await dashboard.group_steps(store, (await the_group(store)).fingerprint)
    assert {name: step.messages for name, step in steps.items()} == {"open": 3, "triaged": 2}
    assert (steps["triaged"].cause, steps["open"].cause) == ("data", None)


async def test_samples_are_of_the_present_version(store: PostgresStore) -> None:
    ids = await dead(store, count=2, body=b'{"currency":null}')
    await workflow.triage(store, ids, Cause.DATA, WHO)
    await workflow.edit(store, ids[:1], [{"op": "add", "path": "/currency", "value": "EUR"}], WHO)
    found = await dashboard.group_samples(store, (await the_group(store)).fingerprint, limit=10)
    assert {sample.id: sample.body for sample in found} == {ids[0]: b'{"currency":"EUR"}', ids[1]: b'{"currency":null}'}


async def test_large_payloads_and_those_that_are_no_json_are_no_samples(store: PostgresStore) -> None:
    large = b'{"a":"' + b"x" * dashboard.SAMPLE_BYTES_MAX + b'"}'
    await dead(store, body=large)
    assert await dashboard.group_samples(store, (await the_group(store)).fingerprint, limit=10) == []


async def test_delivered_messages_of_the_same_kind_are_compared(store: PostgresStore) -> None:
    for _ in range(3):
        await m.enqueue(store, body=b'{"currency":"EUR"}')
    for attempt in (await m.claim_all(store)).attempts:
        await store.settle(m.WORKER, [m.outcome(attempt, m.close())], now=m.at(1))
    await dead(store, count=4, body=b'{"currency":null}', now=m.at(2))
    compared = await commonalities.compare(store, await the_group(store))
    assert [(one.path, one.says, one.delivered_share) for one in compared.found] == [("currency", "= null", 0.0)]
    assert (compared.failed, compared.delivered) == (4, 3)


async def test_the_replays_of_a_group_are_found_latest_first(store: PostgresStore) -> None:
    await dead(store, count=2)
    group = await the_group(store)
    assert await dashboard.group_replays(store, group.id) == []
    wanted = replays.NewReplay(name="first", filter={"group": group.id}, override=True, **ACT)
    made = await replays.create(store, wanted, now=m.at(5))
    assert await dashboard.group_replays(store, group.id) == [made.id]
    assert await dashboard.group_replays(store, "00" * 16) == []


async def test_traffic_counts_what_ended_by_slot(store: PostgresStore) -> None:
    now = await store.now()
    await m.enqueue(store, now=now)
    await m.enqueue(store, now=now)
    first, second = (await m.claim_all(store, now=now)).attempts
    await store.settle(m.WORKER, [m.outcome(first, m.close())], now=now)
    await store.settle(m.WORKER, [m.outcome(second, m.retry(delay_seconds=30))], now=now)
    seen = await dashboard.traffic(store, span=timedelta(minutes=10), slots=10)
    assert sum(slot.delivered for slot in seen.slots) == 1
    assert sum(slot.retried for slot in seen.slots) == 1
    assert all(0 <= slot.slot <= 10 for slot in seen.slots)
    assert seen.began is None
    elsewhere = await dashboard.traffic(store, destination="nowhere")
    assert elsewhere.slots == []
    delays = await dashboard.retry_delays(store, m.DESTINATION)
    assert [(one.spent, one.attempts, round(one.median_seconds)) for one in delays] == [(1, 1, 30)]


async def test_a_change_changes_the_pulse(store: PostgresStore) -> None:
    async def looked() -> int:
        async with store.connection() as conn:
            await conn.execute("SELECT pg_stat_force_next_flush()")
        return await dashboard.pulse(store)

    before = await looked()
    async with store.connection() as conn:
        await conn.execute("SELECT pg_stat_force_next_flush()")
        await conn.execute("INSERT INTO redrive.destination (name) VALUES ('pulse')")
    await eventually_other(looked, before)


async def eventually_other(looked: Any, before: int) -> None:
    """The server's counters follow within about a second."""
    for _ in range(3000):
        if await looked() != before:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("nothing was noticed in 30 s")
