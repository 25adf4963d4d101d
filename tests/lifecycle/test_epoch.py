"""After a failover or a restore nothing is sent that moves money until somebody has compared the books (I37)."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest

from redrive.answers import Delivered
from redrive.errors import ActRefused
from redrive.message import MessageId, Priority, WorkerId
from redrive.operate import embedded
from redrive.ports import ClaimRequest, DestinationState, RelayInfo
from redrive.store.migrations import migrate
from redrive.store.runtime.postgres import PostgresStore
from tests.support import messages as m

BANK, MAIL = "bank", "mail"
RELAY = RelayInfo(
    worker=m.WORKER, name="relay", host="here", pid=os.getpid(), version="1", destinations=[BANK, MAIL], money=[BANK]
)
# As a restored copy finds it: what is written down is another life of the database.
ELSEWHERE = "UPDATE redrive.epoch SET timeline = timeline + 1 RETURNING 1"


async def claimed(store: PostgresStore, *, worker: WorkerId = m.WORKER) -> set[str]:
    claim_requests = [ClaimRequest(name, Priority.NORMAL.level, 10) for name in (BANK, MAIL)]
    taken = await store.claim(worker, claim_requests, lease_seconds=60, now=m.START)
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
    assert await store.suspect_destinations([BANK], now=m.START)
    await store.rows(ELSEWHERE, [])
    assert not await store.suspect_destinations([BANK], now=m.START)
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
    with pytest.raises(ActRefused, match="a second person"):
        await store.resume(BANK, actor="ada", reason="the books agree", now=m.START)
    with pytest.raises(ActRefused, match="a second person"):
        await store.resume(BANK, actor="ada", reason="the books agree", now=m.START)
    assert (await state(store)).paused
    assert await store.resume(BANK, actor="ben", reason="the books agree", now=m.START)
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


async def begin(store: PostgresStore, cause: str = "declared", destination: str | None = None) -> int:
    query = "SELECT redrive.begin_epoch(%s, 'ada', 'a test', %s, %s)"
    return int((await store.rows(query, [cause, m.START, destination]))[0][0])


async def doubts(store: PostgresStore) -> dict[MessageId, bool]:
    """Of what is pending or parked: whether it is in doubt."""
    rows = await store.rows(
        "SELECT id, in_doubt_since IS NOT NULL FROM redrive.pending"
        " UNION ALL SELECT id, in_doubt_since IS NOT NULL FROM redrive.parked",
        [],
    )
    return dict(rows)


@pytest.mark.req("P-10")
async def test_an_epoch_puts_all_that_waits_for_money_in_doubt(store: PostgresStore) -> None:
    await store.register(RELAY, now=m.START)
    dead = await m.enqueue(store, destination=BANK)
    (attempt,) = (await store.claim(m.WORKER, [ClaimRequest(BANK, 1, 1)], lease_seconds=60, now=m.START)).attempts
    await store.settle(m.WORKER, [m.outcome(attempt, m.park(halts=False))], now=m.START)
    ordered = [await m.enqueue(store, destination=BANK, order_by="k") for _ in range(2)]
    bank, mail = await m.enqueue(store, destination=BANK), await m.enqueue(store, destination=MAIL)
    assert await doubts(store) == dict.fromkeys((dead, *ordered, bank, mail), False)
    await begin(store)
    assert await doubts(store) == {**dict.fromkeys((dead, *ordered, bank), True), mail: False}


@pytest.mark.req("P-10")
async def test_an_epoch_of_one_destination_leaves_the_others_alone(store: PostgresStore) -> None:
    other = replace(RELAY, destinations=[BANK, MAIL], money=[BANK, MAIL])
    await store.register(other, now=m.START)
    await begin(store, "statement", MAIL)
    assert (await state(store, MAIL)).pause_reason == "epoch"
    assert not (await state(store, BANK)).paused


@pytest.mark.req("P-10")
async def test_what_another_transaction_holds_is_put_in_doubt_later_and_the_pause_stays_until_then(
    store: PostgresStore, database: str
) -> None:
    await store.register(RELAY, now=m.START)
    id = await m.enqueue(store, destination=BANK, order_by="k")
    async with await psycopg.AsyncConnection.connect(database) as other:
        await other.execute("SELECT 1 FROM redrive.lane FOR UPDATE")
        await begin(store)
        assert (await state(store)).pause_reason == "epoch", "the pause waits for nothing"
        assert await doubts(store) == {id: False}
        (answer,) = await store.rows(
            "SELECT redrive.note_comparison(%s, %s, true, 'reconciliation', 'a test', %s)",
            [BANK, m.START + timedelta(hours=1), m.START],
        )
        assert answer == (False,)
    await state(store)
    assert await doubts(store) == {id: True}


@pytest.mark.req("P-10")
async def test_epochs_beside_claims_lose_no_wake_up_and_end(store: PostgresStore, database: str) -> None:
    """Claims and settles go on while epochs put everything in doubt; then each message is claimed, in its order."""
    await store.register(RELAY, now=m.START)
    ids = [await m.enqueue(store, destination=BANK, order_by=f"k{n % 5}") for n in range(40)]
    taken: list[MessageId] = []

    async def claiming(worker: WorkerId) -> None:
        async with PostgresStore(database) as mine:
            while len(taken) < len(ids):
                claimed = await mine.claim(worker, [ClaimRequest(BANK, 1, 2)], lease_seconds=600, now=m.START)
                outcomes = [m.outcome(one, m.close(Delivered("r"))) for one in claimed.attempts]
                taken.extend(one.id for one in claimed.attempts)
                if outcomes:
                    await mine.settle(worker, outcomes, now=m.START)
                await mine.rows(
                    "UPDATE redrive.destination SET paused_at = NULL, pause_reason = NULL WHERE name = %s RETURNING 1",
                    [BANK],
                )

    async def beginning() -> None:
        async with PostgresStore(database) as mine:
            while len(taken) < len(ids):
                await begin(mine)

    async with asyncio.timeout(60):
        await asyncio.gather(claiming(m.WORKER), claiming(m.OTHER_WORKER), beginning())
    assert sorted(taken) == sorted(ids)
    assert (await store.mend_lanes(lanes=100, now=m.START)).mended == 0, "no lane was forgotten"


@pytest.mark.req("P-10")
@pytest.mark.parametrize(("began", "clean", "goes_on"), [(29, True, False), (30, True, True), (31, False, False)])
async def test_the_pause_ends_by_a_clean_comparison_whose_statement_was_read_late_enough(
    store: PostgresStore, began: int, clean: bool, goes_on: bool
) -> None:
    await store.register(replace(RELAY, effects_within_seconds={BANK: 30.0}), now=m.START)
    await begin(store)
    (answer,) = await store.rows(
        "SELECT redrive.note_comparison(%s, %s, %s, 'reconciliation', 'the books agree', %s)",
        [BANK, m.START + timedelta(seconds=began), clean, m.START],
    )
    assert answer == (goes_on,)
    assert (await state(store)).paused is not goes_on


@pytest.mark.req("P-10")
async def test_resumed_by_two_people_all_that_waits_and_can_be_looked_up_is_looked_up(store: PostgresStore) -> None:
    await store.register(replace(RELAY, in_doubt={BANK: "lookup"}), now=m.START)
    await begin(store)
    id = await m.enqueue(store, destination=BANK)
    with pytest.raises(ActRefused):
        await store.resume(BANK, actor="ada", reason="compared by hand", now=m.START)
    assert await store.resume(BANK, actor="ben", reason="compared by hand", now=m.START)
    assert await doubts(store) == {id: True}, "it may be one that was lost, submitted again"


@pytest.mark.req("P-10")
async def test_a_declared_restore_pauses_money_and_a_dry_run_changes_nothing(store: PostgresStore) -> None:
    await store.register(RELAY, now=m.START)
    await enqueue_both(store)
    (would,) = await store.declare_restored(actor="ada", reason="from the backup of noon", dry_run=True, now=m.START)
    assert (would.destination, would.pending, would.dead, would.paused_before) == (BANK, 1, 0, False)
    assert not (await state(store)).paused
    assert await store.declare_restored(actor="ada", reason="from the backup of noon", now=m.START) == [would]
    assert (await state(store)).pause_reason == "epoch"
    rows = await store.rows("SELECT cause, declared_by, reason FROM redrive.epoch ORDER BY number DESC LIMIT 1", [])
    assert rows == [("declared", "ada", "from the backup of noon")]


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
        assert not (await store.claim(m.WORKER, [ClaimRequest(BANK, 1, 1)], lease_seconds=60)).attempts
        (bank, _) = sorted(await store.heartbeat(m.WORKER), key=lambda one: one.name)
        assert (bank.name, bank.pause_reason) == (BANK, "epoch")
        assert await store.rows("SELECT timeline FROM redrive.epoch ORDER BY number", []) == [(1,), (2,)]


def _promote(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("SELECT pg_promote(true, 60)")
        deadline = time.monotonic() + 60
        while conn.execute("SELECT pg_is_in_recovery()").fetchone() == (True,) and time.monotonic() < deadline:
            time.sleep(0.05)
