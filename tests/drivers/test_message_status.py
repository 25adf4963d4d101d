"""One suite for every door: how a message stands, waiting for its end, taking it back (G-24, ruling 14).

The tests share a database, and each has a key of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

import redrive
from redrive.errors import InvalidValue, NotFinished, NotFound, OpenTransaction
from redrive.message import CancelAnswer
from redrive.patterns.inbox import Inbox, Received
from tests.drivers.conftest import PLACES, database_at
from tests.support.doors import Asynchronous, Door, Producer

LATER = datetime(2090, 1, 1, 12, 30, 15, 123456, tzinfo=UTC)


@pytest.fixture(scope="module", params=PLACES)
def database(request: pytest.FixtureRequest) -> Iterator[str]:
    yield from database_at(request)


@pytest.fixture
def key() -> str:
    return str(uuid4())


@contextmanager
def between_looks(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> Iterator[list[float]]:
    """Instead of every pause of a `wait`; gives how long each would have been."""
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        act()

    async def pause_async(seconds: float) -> None:
        pause(seconds)

    with monkeypatch.context() as patch:
        patch.setattr(time, "sleep", pause)
        patch.setattr(asyncio, "sleep", pause_async)
        yield pauses


def open_transactions(database: str) -> list[Any]:
    with psycopg.connect(database, autocommit=True) as connection:
        return connection.execute(
            "SELECT query FROM pg_stat_activity"
            " WHERE datname = current_database() AND state LIKE 'idle in transaction%'"
        ).fetchall()


def cancelled_elsewhere(database: str, id: UUID) -> None:
    with psycopg.connect(database) as connection:
        assert redrive.cancel(connection, id) is CancelAnswer.CANCELLED


@pytest.mark.req("G-24")
async def test_how_it_stands_is_told_inside_the_transaction_that_enqueued_it_and_after(
    producer: Producer, key: str
) -> None:
    receipt = await producer.enqueue("mail", 1, key=key, tenant="acme", due_at=LATER)
    inside = await producer.status(receipt.id)
    assert (inside.id, inside.state, inside.attempt, inside.due_at) == (receipt.id, "pending", 0, LATER)
    assert not inside.is_finished
    await producer.commit()
    assert await producer.status(str(receipt.id)) == inside
    assert await producer.status(key=key, tenant="acme") == inside


@pytest.mark.req("G-24")
async def test_what_the_destination_said_is_told(producer: Producer, database: str) -> None:
    receipt = await producer.enqueue("mail", 1)
    await producer.commit()
    with psycopg.connect(database) as connection:
        connection.execute("DELETE FROM redrive.pending WHERE id = %s", [receipt.id])
        connection.execute(
            "INSERT INTO redrive.attempt (message_id, completed_at, attempt, spent, version, verb, tenant, destination,"
            " stage, closed, reference, result) SELECT id, %s, 3, 1, 1, 'settle', tenant, destination, 'first',"
            " 'delivered', 'r-1', '{\"amount\": 1.10}' FROM redrive.message WHERE id = %s",
            [LATER, receipt.id],
        )
    found = await producer.status(receipt.id)
    assert (found.state, found.attempt, found.closed_at, found.is_finished) == ("delivered", 3, LATER, True)
    assert (found.reference, found.result, found.due_at) == ("r-1", {"amount": 1.1}, None)


@pytest.mark.req("G-24")
async def test_a_cancel_holds_from_the_callers_commit_on_and_not_after_a_rollback(
    producer: Producer, database: str, key: str
) -> None:
    receipt = await producer.enqueue("mail", 1, key=key)
    await producer.commit()
    assert await producer.cancel(receipt.id) is CancelAnswer.CANCELLED
    await producer.rollback()
    assert (await producer.status(receipt.id)).state == "pending"
    assert await producer.cancel(key=key) is CancelAnswer.CANCELLED
    await producer.commit()
    assert (await producer.status(key=key)).state == "cancelled"
    assert await producer.cancel(receipt.id) is CancelAnswer.ALREADY_CLOSED
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT 1 FROM redrive.pending WHERE id = %s", [receipt.id]).fetchall() == []


@pytest.mark.req("G-24")
async def test_without_a_transaction_a_cancel_holds_at_once(door: Door, dsn: str, database: str) -> None:
    with psycopg.connect(database) as connection:
        receipt = redrive.enqueue(connection, "mail", 1)
    async with door(dsn, autocommit=True) as producer:
        assert (await producer.status(receipt.id)).state == "pending"
        assert await producer.cancel(receipt.id) is CancelAnswer.CANCELLED
        with psycopg.connect(database) as connection:
            assert redrive.status(connection, receipt.id).state == "cancelled"
        assert (await producer.wait(receipt.id)).state == "cancelled"


@pytest.mark.req("G-24")
async def test_a_wait_sees_the_end_that_others_bring_and_holds_no_transaction_meanwhile(
    producer: Producer, database: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    receipt = await producer.enqueue("mail", 1, key=key)
    await producer.end()
    held: list[Any] = []

    def others_act() -> None:
        held.extend(open_transactions(database))
        if len(pauses) == 3:
            cancelled_elsewhere(database, receipt.id)

    with between_looks(monkeypatch, others_act) as pauses:
        assert (await producer.wait(key=key, timeout_seconds=600)).state == "cancelled"
    assert pauses == [0.02, 0.04, 0.08]
    assert held == []
    assert open_transactions(database) == []


@pytest.mark.req("G-24")
async def test_a_wait_inside_the_transaction_that_enqueued_is_refused_at_once(
    producer: Producer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    receipt = await producer.enqueue("mail", 1)
    with between_looks(monkeypatch, lambda: None) as pauses:
        with pytest.raises(OpenTransaction, match="Commit it or roll it back"):
            await producer.wait(receipt.id, timeout_seconds=1)
        await producer.rows("SAVEPOINT mine")
        with pytest.raises(OpenTransaction):
            await producer.wait(receipt.id, timeout_seconds=1)
    assert pauses == []
    await producer.commit()  # the refusal has ended nothing
    with psycopg.connect(database) as connection:
        assert redrive.status(connection, receipt.id).state == "pending"


@pytest.mark.req("G-24")
async def test_a_wait_that_takes_too_long_says_how_it_stands(producer: Producer, database: str) -> None:
    receipt = await producer.enqueue("mail", 1)
    await producer.end()
    with pytest.raises(NotFinished, match="is pending after 0 seconds") as caught:
        await producer.wait(receipt.id, timeout_seconds=0)
    assert isinstance(caught.value, TimeoutError)
    assert caught.value.status.id == receipt.id
    assert open_transactions(database) == []


async def test_what_nobody_knows_is_said_so_and_leaves_no_transaction(
    producer: Producer, database: str, key: str
) -> None:
    await producer.end()
    with pytest.raises(NotFound, match="has not been committed"):
        await producer.wait(uuid4())
    assert open_transactions(database) == []
    with pytest.raises(NotFound, match="'acme'"):
        await producer.status(key=key, tenant="acme")
    with pytest.raises(NotFound):
        await producer.cancel(uuid4())
    with pytest.raises(NotFound):
        await producer.cancel(key=key)
    for wrong in ({}, {"id": uuid4(), "key": key}, {"id": "no uuid"}, {"key": ""}):
        with pytest.raises(InvalidValue):
            await producer.status(**wrong)
    assert await producer.rows("SELECT 1") == [(1,)]


@pytest.mark.req("G-23")
async def test_every_connection_receives_a_message_of_a_broker_once(producer: Producer, key: str) -> None:
    inbox = Inbox("billing")

    async def call(name: str, *values: Any, **options: Any) -> Any:
        is_async = isinstance(producer, Asynchronous)
        found = getattr(inbox, f"a{name}" if is_async else name)(producer.connection, *values, **options)
        return await found if is_async else found

    assert await call("receive", key, order_by=key) is Received.FIRST
    assert (await call("defer", key, {"n": 1}, order_by=key)).is_new
    await producer.commit()
    assert await call("receive", key, order_by=key) is Received.SEEN
    await producer.rollback()
