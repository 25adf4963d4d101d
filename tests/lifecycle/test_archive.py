"""What is written once stays as it was, whoever asks; and at every step of a life each message is in one place."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import psycopg
import pytest

from redrive.message import MessageId, ParkReason
from redrive.store.runtime.postgres import PostgresStore
from tests.support import messages as m
from tests.support.verbs import ACT

APPEND_ONLY = ("message", "body", "attempt", "operator_action", "late_answer", "idempotency")
CHANGES = ("UPDATE redrive.{} SET {} = {}", "DELETE FROM redrive.{}", "TRUNCATE redrive.{}")
A_COLUMN = {"message": "kind", "body": "created_by", "attempt": "verb", "operator_action": "actor"}


async def one_row_in_each(store: PostgresStore) -> MessageId:
    """A life that has left something in every append-only table."""
    message_id = await m.enqueue(store, key="order:1")
    late = await m.claim(store)
    await store.reap(limit=10, now=m.at(100))
    await m.settle(store, late, m.close(), now=m.at(100))
    await m.settle(store, await m.claim_suspect(store, now=m.at(100)), m.park(), worker=m.OTHER_WORKER, now=m.at(101))
    await store.discard(message_id, **ACT, now=m.at(102))
    await store.rows(
        "INSERT INTO redrive.body (message_id, version, content_type, bytes, sha256, created_at, created_by)"
        " VALUES (%s, 2, 'application/json', '{}', '', now(), 'ada') RETURNING 1",
        [message_id],
    )
    return message_id


@pytest.mark.req("G-05")
@pytest.mark.parametrize("change", CHANGES, ids=["update", "delete", "truncate"])
@pytest.mark.parametrize("table", APPEND_ONLY)
async def test_append_only_table_refuses_change_even_by_its_owner(
    store: PostgresStore, table: str, change: str
) -> None:
    await one_row_in_each(store)
    column = A_COLUMN.get(table, "tenant" if table == "idempotency" else "settlement")
    before = await store.rows(f"SELECT * FROM redrive.{table}", [])
    assert before
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="append-only"):
        await store.rows(change.format(table, column, column), [])
    assert await store.rows(f"SELECT * FROM redrive.{table}", []) == before


@pytest.mark.req("G-05")
@pytest.mark.parametrize("change", CHANGES, ids=["update", "delete", "truncate"])
@pytest.mark.parametrize("table", ["message", "body", "attempt"])
async def test_partition_of_the_archive_refuses_change_too(store: PostgresStore, table: str, change: str) -> None:
    await one_row_in_each(store)
    query = f"SELECT tableoid::regclass::text FROM redrive.{table} LIMIT 1"
    partition = (await store.rows(query, []))[0][0].removeprefix("redrive.")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="append-only"):
        await store.rows(change.format(partition, A_COLUMN[table], A_COLUMN[table]), [])


@pytest.mark.req("G-05")
@pytest.mark.parametrize("role", ["redrive_producer", "redrive_relay", "redrive_operator", "redrive_viewer"])
@pytest.mark.parametrize("table", ["attempt", "pending", "lease", "parked", "operator_action"])
async def test_role_changes_no_table_directly(store: PostgresStore, role: str, table: str) -> None:
    async with store.connection() as conn, conn.transaction(force_rollback=True):
        await conn.execute(f"SET LOCAL ROLE {role}".encode())
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            await conn.execute(f"DELETE FROM redrive.{table}".encode())


@pytest.mark.req("G-28")
async def test_every_message_is_in_one_place_after_each_step(store: PostgresStore) -> None:
    """Six messages, six fates, looked at after every verb."""
    ids = []
    for number in range(6):
        ids.append(await m.enqueue(store, key=f"order:{number}", expires_at=m.at(5_000)))
        assert await m.conserved(store)
    first, second, third, fourth, fifth, _ = sorted((await m.claim_all(store)).attempts, key=lambda a: ids.index(a.id))
    steps: list[Callable[[], Awaitable[Any]]] = [
        lambda: m.settle(store, first, m.close()),
        lambda: m.settle(store, second, m.retry(delay_seconds=10)),
        lambda: m.settle(store, third, m.park(ParkReason.DEAD)),
        lambda: m.settle(store, fourth, m.park(ParkReason.HELD)),
        lambda: m.settle(store, fifth, m.park(ParkReason.UNRECORDED)),
        lambda: store.reap(limit=10, now=m.at(100)),
        lambda: m.settle(store, first, m.close()),
        lambda: store.requeue(third.id, **ACT, now=m.at(100)),
        lambda: store.deny(fourth.id, **ACT, now=m.at(100)),
        lambda: store.repair(fifth.id, **ACT, now=m.at(100)),
        lambda: store.cancel(second.id, now=m.at(100)),
        lambda: m.claim_all(store, now=m.at(100)),
        lambda: store.reap(limit=10, worker=m.WORKER, now=m.at(100)),
        lambda: store.expire(limit=10, now=m.at(6_000)),
        lambda: m.claim_suspect(store, now=m.at(6_000)),
    ]
    for number, step in enumerate(steps):
        await step()
        assert await m.conserved(store), number
    states = await store.rows("SELECT DISTINCT state FROM redrive.messages", [])
    assert ("lost",) not in states


@pytest.mark.req("G-28")
async def test_message_that_is_nowhere_would_be_seen(store: PostgresStore) -> None:
    """The guard of the guards: take a row away behind the engine's back, and both views say so."""
    message_id = await m.enqueue(store)
    await store.rows("DELETE FROM redrive.pending RETURNING id", [])
    assert not await m.conserved(store)
    query = "SELECT state FROM redrive.messages WHERE id = %s"
    assert await store.rows(query, [message_id]) == [("lost",)]


@pytest.mark.req("G-02")
async def test_key_is_known_for_good(store: PostgresStore) -> None:
    """Also after the message was delivered, and after its history was retired."""
    message_id = await m.enqueue(store, key="order:1")
    await m.settle(store, await m.claim(store), m.close())
    assert await m.enqueue_row(store, key="order:1") == ("duplicate", message_id, None, "delivered")
    assert (await m.enqueue_row(store, key="order:1", tenant="other"))[0] == "new"


@pytest.mark.req("G-05")
async def test_ids_are_ordered_by_time(store: PostgresStore) -> None:
    ids = [UUID(str(await m.enqueue(store))) for _ in range(3)]
    assert all(i.version == 7 for i in ids)
    assert [i.int >> 80 for i in ids] == sorted(i.int >> 80 for i in ids)
