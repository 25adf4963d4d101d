"""After a failover or a restore nothing is sent that moves money until somebody has compared the books (I37)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace

import psycopg
import pytest

from redrive.message import MessageId, Priority, WorkerId
from redrive.operate import embedded
from redrive.ports import DestinationState, RelayInfo, Room
from redrive.store import migrate
from redrive.store.postgres import PostgresStore
from tests.support import messages as m

BANK, MAIL = "bank", "mail"
RELAY = RelayInfo(
    worker=m.WORKER, name="relay", host="here", pid=os.getpid(), version="1", destinations=[BANK, MAIL], money=[BANK]
)
# As a restored copy finds it: what is written down is another life of the database.
ELSEWHERE = "UPDATE redrive.epoch SET timeline = timeline + 1 RETURNING 1"


async def claimed(store: PostgresStore, *, worker: WorkerId = m.WORKER) -> set[str]:
    rooms = [Room(name, Priority.NORMAL.level, 10) for name in (BANK, MAIL)]
    taken = await store.claim(worker, rooms, lease_seconds=60, now=m.START)
    return {attempt.destination for attempt in taken.attempts}


async def state(store: PostgresStore, name: str = BANK) -> DestinationState:
    states = await store.heartbeat(m.WORKER, now=m.START)
    return next(one for one in states if one.name == name)


async def enqueue_both(store: PostgresStore) -> MessageId:
    await m.enqueue(store, destination=MAIL)
    return await m.enqueue(store, destination=BANK)


async def test_the_first_epoch_pauses_nothing(store: PostgresStore) -> None:
    await store.register(RELAY, now=m.START)
    await enqueue_both(store)
    assert not (await state(store)).paused
    assert await claimed(store) == {BANK, MAIL}


async def test_in_another_epoch_no_money_is_claimed_even_before_anybody_noticed(store: PostgresStore) -> None:
    await store.register(RELAY, now=m.START)
    await enqueue_both(store)
    await store.rows(ELSEWHERE, [])
    assert await claimed(store) == {MAIL}


async def test_in_another_epoch_no_suspect_and_no_next_of_a_key_goes_to_money(store: PostgresStore) -> None:
    await store.register(RELAY, now=m.START)
    await m.enqueue(store, destination=BANK)
    assert await claimed(store) == {BANK}
    await store.reap(limit=10, worker=m.WORKER, now=m.START)
    assert await store.has_suspect([BANK], now=m.START)
    await store.rows(ELSEWHERE, [])
    assert not await store.has_suspect([BANK], now=m.START)
    (rows,) = await store.rows("SELECT redrive.is_open(%s, %s)", [BANK, m.START])
    assert rows == (False,)  # what hands over the next message of a key asks this too


async def test_a_heartbeat_pauses_money_with_the_reason_epoch_until_it_is_resumed(store: PostgresStore) -> None:
    await store.register(RELAY, now=m.START)
    await enqueue_both(store)
    await store.rows(ELSEWHERE, [])
    paused = await state(store)
    assert (paused.paused, paused.pause_reason, paused.paused_by) == (True, "epoch", "redrive")
    assert not (await state(store, MAIL)).paused
    assert await claimed(store) == {MAIL}
    await store.resume(BANK, actor="ada", reason="the books agree", now=m.START)
    assert not (await state(store)).paused, "one change is one pause"
    assert await claimed(store) == {BANK}
    acts = await store.rows("SELECT act, actor, subject, reason FROM redrive.operator_action ORDER BY id", [])
    assert acts[0] == ("pause", "redrive", BANK, "epoch")


async def test_what_a_person_had_paused_stays_in_his_name(store: PostgresStore) -> None:
    await store.register(RELAY, now=m.START)
    await store.pause(BANK, actor="ada", reason="maintenance", now=m.START)
    await store.rows(ELSEWHERE, [])
    paused = await state(store)
    assert (paused.pause_reason, paused.paused_by) == ("epoch", "ada")


async def test_two_relays_that_notice_write_it_down_once(store: PostgresStore) -> None:
    await store.register(RELAY, now=m.START)
    await store.rows(ELSEWHERE, [])
    await store.register(replace(RELAY, worker=m.OTHER_WORKER), now=m.START)
    await state(store)
    assert [row[0] for row in await store.rows("SELECT number FROM redrive.epoch ORDER BY number", [])] == [1, 2]


@pytest.mark.full
@pytest.mark.own_server
async def test_a_promoted_copy_is_another_epoch(crash_server: Callable[..., embedded.Server]) -> None:
    server = crash_server()
    migrate.upgrade(server.dsn)
    async with PostgresStore(server.dsn) as store:
        await store.register(RELAY)
        await store.rows("SELECT redrive.enqueue_1(%s, %s)", [BANK, b"{}"])
    server.stop()
    (server.data_dir / "standby.signal").touch()
    promoted = crash_server(server.data_dir)
    _promote(promoted.dsn)
    async with PostgresStore(promoted.dsn) as store:
        assert not (await store.claim(m.WORKER, [Room(BANK, 1, 1)], lease_seconds=60)).attempts
        (bank, _) = sorted(await store.heartbeat(m.WORKER), key=lambda one: one.name)
        assert (bank.name, bank.pause_reason) == (BANK, "epoch")
        assert await store.rows("SELECT timeline FROM redrive.epoch ORDER BY number", []) == [(1,), (2,)]


def _promote(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("SELECT pg_promote(true, 60)")
        deadline = time.monotonic() + 60
        while conn.execute("SELECT pg_is_in_recovery()").fetchone() == (True,) and time.monotonic() < deadline:
            time.sleep(0.05)
