"""The duty `mend_lanes`: a lane that nobody would look at is woken and counted; no other is touched (G-07)."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from redrive.app import Duty
from redrive.events import Events
from redrive.message import Attempt, ParkReason
from redrive.recover.duties import run_if_due
from redrive.recover.engine_duties import engine_duties, mend_lanes
from redrive.store.runtime.postgres import PostgresStore
from tests.relay.harness import Seen
from tests.support import messages as m

pytestmark = pytest.mark.req("G-07")


async def lose_tokens(store: PostgresStore) -> None:
    """The bug that the duty is there for."""
    await store.rows("WITH lost AS (DELETE FROM redrive.lane_wake) SELECT 1", [])


async def keys(store: PostgresStore, *names: str) -> None:
    for name in names:
        await m.enqueue(store, order_by=name)


async def claimed(store: PostgresStore, seconds: float = 0.0) -> list[Attempt]:
    return list((await m.claim_all(store, now=m.at(seconds))).attempts)


async def mended_ever(store: PostgresStore) -> int:
    (row,) = await store.rows("SELECT coalesce(sum(mended), 0) FROM redrive.duty", [])
    return int(row[0])


async def test_a_lane_that_nobody_would_look_at_is_woken_and_its_head_goes(store: PostgresStore) -> None:
    await keys(store, "a", "b", "a")
    await lose_tokens(store)
    assert await claimed(store) == []
    assert (await store.mend_lanes(lanes=10, now=m.START)).mended == 2
    assert sorted((a.order_by, a.sequence) for a in await claimed(store)) == [("a", 1), ("b", 1)]


async def test_a_head_that_is_not_due_is_woken_when_it_is(store: PostgresStore) -> None:
    await m.enqueue(store, order_by="a", due_at=m.at(50))
    await lose_tokens(store)
    assert (await store.mend_lanes(lanes=10, now=m.START)).mended == 1
    assert await claimed(store, 49) == []
    assert len(await claimed(store, 50)) == 1


async def test_what_was_mended_is_counted_for_good_and_said_each_time(store: PostgresStore) -> None:
    seen = Seen()
    for n in range(1, 3):
        await keys(store, f"a{n}", f"b{n}")
        await lose_tokens(store)
        assert await mend_lanes(store, events=seen.events) == f"{2 * n} mended"
        assert seen.of("lanes.mended")[-1] == {"count": 2 * n}
    assert await mend_lanes(store, events=seen.events) == "0 mended"
    assert len(seen.of("lanes.mended")) == 2
    assert await mended_ever(store) == 6


async def test_the_engine_runs_it_every_minute_and_keeps_its_result(store: PostgresStore) -> None:
    duty = _duty()
    assert duty.every_seconds == 60
    await keys(store, "a")
    await lose_tokens(store)
    assert await run_if_due(store, duty, worker=m.WORKER, events=Seen().events)
    rows = await store.rows("SELECT result, mended FROM redrive.duty WHERE name = 'mend_lanes'", [])
    assert [tuple(row) for row in rows] == [("1 mended", 1)]


def _duty() -> Duty:
    duties = engine_duties(reap_every_seconds=15, partition_days=7, partitions_ahead=4, retention_days=None)
    return next(duty for duty in duties if duty.name == "mend_lanes")


async def _in_flight(store: PostgresStore) -> None:
    await keys(store, "a", "a")
    await m.claim(store)


async def _suspect(store: PostgresStore) -> None:
    await _in_flight(store)
    await store.reap(limit=10, now=m.at(100))


async def _parked(store: PostgresStore, reason: ParkReason) -> None:
    await keys(store, "a", "a")
    await m.settle(store, await m.claim(store), m.park(reason))


async def _empty(store: PostgresStore) -> None:
    await keys(store, "a")
    await m.settle(store, await m.claim(store), m.close())


async def _waits_with_its_token(store: PostgresStore) -> None:
    await keys(store, "a", "a")
    await m.settle(store, await m.claim(store), m.retry(delay_seconds=600))


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(_in_flight, id="in flight"),
        pytest.param(_suspect, id="suspect"),
        *(pytest.param(lambda s, r=reason: _parked(s, r), id=reason.value) for reason in ParkReason),
        pytest.param(_empty, id="empty"),
        pytest.param(_waits_with_its_token, id="waits for a retry"),
    ],
)
async def test_a_lane_that_rightly_waits_is_left_alone(store: PostgresStore, made: object) -> None:
    await made(store)  # type: ignore[operator]  # one of the functions above
    before = await store.rows("SELECT * FROM redrive.lane_wake", [])
    assert (await store.mend_lanes(lanes=10, now=m.at(200))).mended == 0
    assert await store.rows("SELECT * FROM redrive.lane_wake", []) == before
    assert await mended_ever(store) == 0


async def test_a_call_looks_at_so_many_lanes_and_the_next_one_goes_on(store: PostgresStore) -> None:
    await keys(store, *(f"halted-{n}" for n in range(3)))
    for attempt in await claimed(store):
        await m.settle(store, attempt, m.park())
    await keys(store, *(f"halted-{n}" for n in range(3)), "z")
    await lose_tokens(store)
    assert await store.mend_lanes(lanes=3, now=m.START) == (0, 3, False)
    assert await store.mend_lanes(lanes=3, now=m.START) == (1, 1, True)
    assert [attempt.order_by for attempt in await claimed(store)] == ["z"]
    assert (await store.mend_lanes(lanes=3, now=m.START)).looked_at == 3, "it begins anew"


async def test_every_lane_is_looked_at_within_a_known_number_of_runs(store: PostgresStore) -> None:
    await keys(store, *(f"key-{n}" for n in range(10)))
    await lose_tokens(store)
    results = [await mend_lanes(store, lanes=2, slices=2, events=Events()) for _ in range(3)]
    going_on = "4 mended; 4 lanes looked at, the next run goes on"
    assert results == [going_on, going_on, "2 mended"]
    assert len(await claimed(store, 1e9)) == 10


async def test_a_lane_that_somebody_holds_is_looked_at_the_next_time(store: PostgresStore, database: str) -> None:
    await keys(store, "a")
    await lose_tokens(store)
    async with await psycopg.AsyncConnection.connect(database) as other:
        await other.execute("SELECT FROM redrive.lane FOR UPDATE")
        assert (await store.mend_lanes(lanes=10, now=m.START)).mended == 0
    assert (await store.mend_lanes(lanes=10, now=m.START)).mended == 1
    assert await mended_ever(store) == 1


async def test_a_lane_that_was_woken_while_the_duty_looked_is_not_counted(store: PostgresStore, database: str) -> None:
    await keys(store, "a")
    (token,) = await store.rows("SELECT t::text FROM redrive.lane_wake t", [])
    await lose_tokens(store)
    async with await psycopg.AsyncConnection.connect(database) as other:
        await other.execute("LOCK TABLE redrive.lane IN EXCLUSIVE MODE")
        mending = asyncio.create_task(store.mend_lanes(lanes=10, now=m.START))
        await _is_waited_for(other)
        await other.execute("INSERT INTO redrive.lane_wake SELECT (%s::redrive.lane_wake).*", [token[0]])
    assert (await mending).mended == 0
    assert await mended_ever(store) == 0


async def _is_waited_for(connection: psycopg.AsyncConnection[Any]) -> None:
    """Somebody waits for a lock that this connection holds: asked of the server."""
    waits = "SELECT EXISTS (SELECT FROM pg_locks l WHERE %s = ANY (pg_blocking_pids(l.pid)))"
    async with asyncio.timeout(20):
        while (await (await connection.execute(waits, [connection.info.backend_pid])).fetchone()) != (True,):  # noqa: ASYNC110 - nobody could set an event
            await asyncio.sleep(0.01)
