"""A row that Python cannot read parks itself and nothing else; lists show it (G-18)."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from redrive.app import App
from redrive.message import Attempt, MessageId, ParkReason
from redrive.store.reads.messages import list_messages, list_parked, show_message
from redrive.store.reads.models import MessageFilter, ParkedFilter
from redrive.store.reads.status import status
from redrive.store.runtime.postgres import PostgresStore
from tests.relay.harness import enqueue, relaying, states

pytestmark = pytest.mark.req("G-18", "G-32")

# What the table can hold and `enqueue` refuses: written by the owner, or by an earlier version.
HEADERS = {
    "digits": '{"a":' + "9" * 8000 + "}",
    "nesting": '{"a":' + "[" * 5000 + "]" * 5000 + "}",
}
TIMES = {"after 9999": "10000-01-01 00:00:00+00", "before 1": "4000-01-01 00:00:00 BC"}


def spoil(dsn: str, id: MessageId, assignment: str, value: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("ALTER TABLE redrive.message DISABLE TRIGGER USER")
        conn.execute(f"UPDATE redrive.message SET {assignment} WHERE id = %s".encode(), [value, id])
        conn.execute("ALTER TABLE redrive.message ENABLE TRIGGER USER")


async def delivered_beside(store: PostgresStore, app: App) -> list[Any]:
    sent: list[Any] = []

    @app.destination("shop")
    async def handle(attempt: Attempt) -> None:
        sent.append(attempt.id)

    async with relaying(store, app) as relay:
        await relay.seen.until("message.delivered", count=5)
    return sent


@pytest.mark.parametrize("which", HEADERS)
async def test_headers_that_cannot_be_read_park_their_message_and_its_neighbours_are_delivered(
    database: str, store: PostgresStore, app: App, which: str
) -> None:
    bad, *good = await enqueue(store, 6)
    spoil(database, bad, "headers = %s::json", HEADERS[which])
    assert sorted(await delivered_beside(store, app)) == sorted(good)
    assert await states(store) == {"delivered": 5, "parked·dead": 1}
    ((code, text, in_doubt),) = await store.rows(
        "SELECT error_class, last_text, in_doubt_since IS NOT NULL FROM redrive.parked", []
    )
    assert (code, in_doubt) == ("UNDECODABLE", False)
    assert "cannot be read" in text
    await every_list_can_be_read(store, bad)


async def test_one_that_cannot_be_read_and_has_expired_is_closed_and_ends_no_relay(
    database: str, store: PostgresStore, app: App
) -> None:
    bad, *_ = await enqueue(store, 6)
    spoil(database, bad, "headers = %s::json", HEADERS["digits"])
    await store.rows("UPDATE redrive.pending SET expires_at = due_at WHERE id = %s RETURNING 1", [bad])
    assert bad not in await delivered_beside(store, app)
    assert await states(store) == {"delivered": 5, "expired": 1}


@pytest.mark.parametrize("which", TIMES)
async def test_times_that_python_does_not_have_stop_nothing(
    database: str, store: PostgresStore, app: App, which: str
) -> None:
    bad, *_ = await enqueue(store, 5)
    spoil(database, bad, "created_at = %s::timestamptz", TIMES[which])
    await every_list_can_be_read(store, bad)
    assert bad in await delivered_beside(store, app)


async def every_list_can_be_read(store: PostgresStore, id: MessageId) -> None:
    assert id in {view.id for view in (await list_messages(store, MessageFilter(limit=50))).rows}
    assert (await show_message(store, id, payload=True)).view.id == id
    _ = await list_parked(store, ParkedFilter(reason=ParkReason.DEAD, limit=50))
    _ = await status(store)


@pytest.mark.req("G-07")
async def test_one_that_is_handed_over_is_parked_at_once_and_not_when_its_lease_runs_out(
    database: str, store: PostgresStore, app: App
) -> None:
    sql = "SELECT (redrive.enqueue_1('shop', '{}', p_order_by => 'k')).id FROM generate_series(1, 2)"
    first, bad = [MessageId(row[0]) for row in await store.rows(sql, [])]
    spoil(database, bad, "headers = %s::json", HEADERS["digits"])

    @app.destination("shop")
    async def handle(_: Attempt) -> None: ...

    async with relaying(store, app, lease_seconds=3600.0) as relay:
        await relay.seen.until("message.delivered", id=first)
        await relay.seen.until("relay.idle")
    assert await states(store) == {"delivered": 1, "parked·dead": 1}
    assert [row.verb for row in await store.history(bad)] == ["settle"]
