"""One suite for every door: whichever driver a team has, an enqueue is the same promise (G-01 to G-03, ruling 18)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

import redrive
from redrive.errors import InvalidValue, KeyReused, NoOpenTransaction, SchemaError, UsageError
from redrive.message import NewMessage, Receipt
from tests.support.doors import Door, Producer
from tests.support.waiting import wait_until

LATER = datetime(2090, 1, 1, tzinfo=UTC)


def stored(database: str) -> list[Any]:
    """What another connection sees."""
    with psycopg.connect(database) as connection:
        return connection.execute("SELECT destination, body FROM redrive.message ORDER BY id").fetchall()


@pytest.mark.req("G-01")
async def test_the_message_commits_with_the_callers_own_row(producer: Producer, database: str) -> None:
    await producer.rows("CREATE TABLE orders (id int)")
    await producer.commit()
    await producer.rows("INSERT INTO orders VALUES (1)")
    receipt = await producer.enqueue("mail", {"to": "ä"})
    assert isinstance(receipt.id, UUID)
    assert (receipt.already_existed, receipt.sequence, receipt.state) == (False, None, "pending")
    assert stored(database) == []
    await producer.commit()
    assert stored(database) == [("mail", '{"to":"ä"}'.encode())]
    assert await producer.rows("SELECT id FROM orders") == [(1,)]


@pytest.mark.req("G-01")
async def test_it_is_gone_when_the_caller_rolls_back(producer: Producer, database: str) -> None:
    await producer.enqueue("mail", 1, key="k")
    await producer.enqueue_many([NewMessage("mail", 2, key="l"), NewMessage("mail", 3)])
    await producer.rollback()
    assert stored(database) == []
    assert not (await producer.enqueue("mail", 2, key="k")).already_existed


@pytest.mark.req("G-01")
async def test_it_is_gone_with_the_savepoint_it_was_enqueued_in(producer: Producer, database: str) -> None:
    await producer.enqueue("mail", "before")
    await producer.rows("SAVEPOINT mine")
    await producer.enqueue("mail", "inside", key="inside")
    await producer.rows("ROLLBACK TO SAVEPOINT mine")
    await producer.enqueue("mail", "after", key="inside")
    await producer.commit()
    assert [body for _, body in stored(database)] == [b'"before"', b'"after"']


@pytest.mark.req("G-02")
async def test_a_duplicate_gives_the_first_message_back(producer: Producer, database: str) -> None:
    first = await producer.enqueue("mail", {"n": 1}, key="k")
    await producer.commit()
    again = await producer.enqueue("mail", {"n": 1}, key="k")
    assert (again.id, again.already_existed) == (first.id, True)
    (many,) = await producer.enqueue_many([NewMessage("mail", {"n": 1}, key="k")])
    assert (many.id, many.already_existed) == (first.id, True)
    await producer.commit()
    assert len(stored(database)) == 1


@pytest.mark.req("G-03")
async def test_a_conflict_is_refused_and_the_transaction_stays_usable(producer: Producer, database: str) -> None:
    first = await producer.enqueue("mail", 1, key="k")
    with pytest.raises(KeyReused, match=str(first.id)):
        await producer.enqueue("mail", 2, key="k")
    with pytest.raises(KeyReused, match=r"messages\[1\]"):
        await producer.enqueue_many([NewMessage("mail", 7), NewMessage("mail", 2, key="k")])
    kept = await producer.enqueue("mail", 2, key="k", on_other_payload="first_wins")
    assert kept.id == first.id
    await producer.commit()
    assert stored(database) == [("mail", b"1")]


@pytest.mark.req("G-02")
@pytest.mark.parametrize("commits", [True, False])
async def test_of_two_at_once_the_second_waits_and_learns_what_became_of_the_first(
    door: Door, dsn: str, database: str, commits: bool
) -> None:
    with psycopg.connect(database) as first, psycopg.connect(database, autocommit=True) as watching:
        winner = redrive.enqueue(first, "mail", 1, key="k")
        second = asyncio.create_task(asyncio.to_thread(asyncio.run, enqueued(door, dsn)))
        pid = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        await asyncio.to_thread(
            wait_until, lambda: bool(watching.execute(pid.encode()).fetchall()), seconds=20, what="the second to wait"
        )
        assert not second.done()
        first.commit() if commits else first.rollback()
        receipt = await second
    assert receipt.already_existed == commits
    assert (receipt.id == winner.id) == commits
    assert len(stored(database)) == 1


async def enqueued(door: Door, dsn: str) -> Receipt:
    async with door(dsn) as producer:
        receipt = await producer.enqueue("mail", 1, key="k")
        await producer.commit()
        return receipt


@pytest.mark.req("G-01")
async def test_without_a_transaction_it_is_refused_with_what_to_write(door: Door, dsn: str, database: str) -> None:
    async with door(dsn, autocommit=True) as producer:
        with pytest.raises(NoOpenTransaction, match="Write both inside `"):
            await producer.enqueue("mail", 1)
        with pytest.raises(NoOpenTransaction):
            await producer.enqueue_many([NewMessage("mail", 1)])
    assert stored(database) == []


async def test_a_failed_transaction_is_refused_with_what_to_do(producer: Producer) -> None:
    with pytest.raises(Exception, match="division by zero"):
        await producer.rows("SELECT 1/0")
    with pytest.raises(UsageError, match="roll it back"):
        await producer.enqueue("mail", 1)
    await producer.rollback()
    assert (await producer.enqueue("mail", 1)).state == "pending"


@pytest.mark.req("G-07")
async def test_ordered_messages_are_numbered(producer: Producer) -> None:
    numbers = [(await producer.enqueue("mail", n, order_by="customer:1")).sequence for n in range(2)]
    many = await producer.enqueue_many([NewMessage("mail", n, order_by="customer:1") for n in range(2)])
    assert [*numbers, *(receipt.sequence for receipt in many)] == [1, 2, 3, 4]


@pytest.mark.req("G-24")
async def test_everything_that_can_be_said_arrives(producer: Producer, database: str) -> None:
    said: dict[str, Any] = {
        "tenant": "acme",
        "kind": "placed",
        "due_at": LATER,
        "expires_at": LATER + timedelta(days=1),
        "priority": "high",
        "headers": {"trace": "é"},
        "content_type": "application/octet-stream",
    }
    await producer.enqueue("mail", b"\x00\xff%s$1", key="one", **said)
    await producer.enqueue_many([NewMessage("mail", b"\x00\xff%s$1", key="two", **said), NewMessage("mail", 1)])
    await producer.commit()
    with psycopg.connect(database) as connection:
        rows = connection.execute(
            "SELECT m.tenant, m.kind, p.due_at, m.expires_at, m.level, m.headers, m.content_type, m.body"
            "  FROM redrive.message m JOIN redrive.pending p USING (id) WHERE m.key IS NOT NULL"
        ).fetchall()
    expected = (
        "acme",
        "placed",
        LATER,
        LATER + timedelta(days=1),
        0,
        {"trace": "é"},
        said["content_type"],
        b"\x00\xff%s$1",
    )
    assert rows == [expected, expected]


@pytest.mark.req("G-19")
async def test_what_has_expired_already_is_refused_and_the_transaction_stays_usable(producer: Producer) -> None:
    passed = datetime(2020, 1, 1, tzinfo=UTC)
    with pytest.raises(InvalidValue, match="which has passed"):
        await producer.enqueue("mail", 1, expires_at=passed)
    with pytest.raises(InvalidValue, match=r"messages\[0\]"):
        await producer.enqueue_many([NewMessage("mail", 1, expires_at=passed)])
    assert (await producer.enqueue("mail", 1)).state == "pending"


async def test_a_database_without_the_schema_says_what_to_run(door: Door, server_dsn: str) -> None:
    async with door(server_dsn) as producer:
        with pytest.raises(SchemaError, match="redrive"):
            await producer.enqueue("mail", 1)
