"""Messages whose rows are gone, because an administrator dropped a partition with open messages: each parks itself and
delays no other, lists and pages show it, `redrive doctor` counts them."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
import pytest
from psycopg import sql

from redrive.answers import MESSAGE_GONE
from redrive.app import App
from redrive.message import Attempt, MessageId, ParkReason
from redrive.operate import doctor
from redrive.store.reads import doctor as doctor_reads
from redrive.store.reads.messages import list_messages, list_parked, show_message, show_parked
from redrive.store.reads.models import MessageFilter, ParkedFilter
from redrive.store.reads.status import status
from redrive.store.runtime.postgres import PostgresStore
from tests.relay.harness import enqueue, processing, relaying
from tests.support import messages as m

pytestmark = [pytest.mark.req("G-18"), pytest.mark.req("G-31")]


def drop_partition_of(dsn: str, id: MessageId) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        row = conn.execute("SELECT tableoid::regclass::text FROM redrive.message WHERE id = %s", [id]).fetchone()
        assert row is not None
        conn.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(*row[0].split("."))))


def declare(app: App) -> list[MessageId]:
    sent: list[MessageId] = []

    @app.destination("shop")
    async def handle(attempt: Attempt) -> None:
        sent.append(attempt.id)

    return sent


async def codes(store: PostgresStore) -> dict[str, Sequence[MessageId]]:
    rows = await store.rows("SELECT error_class, array_agg(id ORDER BY id) FROM redrive.parked GROUP BY 1", [])
    return dict(rows)


async def test_a_dropped_partition_parks_its_open_messages_and_delays_no_other(
    database: str, store: PostgresStore, app: App
) -> None:
    lost = await enqueue(store, 3)
    drop_partition_of(database, lost[0])
    good = await enqueue(store, 5)
    sent = declare(app)
    async with relaying(store, app) as relay:
        await relay.seen.until("message.delivered", count=5)
    assert sorted(sent) == sorted(good)
    assert await codes(store) == {MESSAGE_GONE: sorted(lost)}
    await every_list_can_be_read(store, lost[0])
    assert (await doctor_reads.upkeep(store)).gone == 3
    point = doctor._messages(await doctor_reads.upkeep(store))
    assert point.verdict is doctor.Verdict.FAIL
    assert point.detail.startswith("3 open messages have no row")


async def test_a_claim_that_was_lost_with_its_row_is_held_and_starts_no_process_again_and_again(
    database: str, store: PostgresStore, app: App
) -> None:
    lost = await enqueue(store, 3)
    await store.claim(m.OTHER_WORKER, m.PLAIN_ROOMS, lease_seconds=60)
    drop_partition_of(database, lost[0])
    await store.reap(limit=10, worker=m.OTHER_WORKER)
    declare(app)
    async with processing(database, app) as seen:
        await seen.until("suspects.ended", code=0)
    assert len(seen.of("suspects.spawned")) == 1
    assert await codes(store) == {MESSAGE_GONE: sorted(lost)}
    rows = await store.rows("SELECT DISTINCT reason, crashes FROM redrive.parked", [])
    assert [tuple(row) for row in rows] == [("held", 0)]


async def every_list_can_be_read(store: PostgresStore, id: MessageId) -> None:
    listed = await list_messages(store, MessageFilter(state="parked", limit=50))
    assert id in {view.id for view in listed.rows}
    details = await show_message(store, id, payload=True)
    assert (details.view.state, details.view.detail, details.payload) == ("parked", "dead", None)
    dead = await list_parked(store, ParkedFilter(reason=ParkReason.DEAD, limit=50))
    assert id in {record.id for record in dead.rows}
    record = await show_parked(store, id)
    assert record is not None
    assert (record.kind, record.key, record.error_class) == ("", None, MESSAGE_GONE)
    _ = await status(store)
