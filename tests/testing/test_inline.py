"""Inline mode: delivered before `enqueue` returns, in the transaction that it was enqueued in."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import redrive
from redrive import NewMessage
from redrive.testing import assert_parked, inline
from tests.testing.conftest import Connection


def test_what_is_enqueued_is_delivered_before_the_call_returns(
    conn: Connection, app: redrive.App, sent: list[Any]
) -> None:
    with inline(conn, app) as done:
        receipt = redrive.enqueue(conn, "mail", 1, key="one")
        assert (receipt.state, sent) == ("pending", [1]), "the receipt is production's"
        redrive.enqueue_many(conn, [NewMessage("mail", 2), NewMessage("mail", 3)])
        assert sorted(sent) == [1, 2, 3]
        redrive.enqueue(conn.cursor(), "mail", 4)
        assert redrive.enqueue(conn, "mail", 1, key="one").already_existed
        assert len(done.delivered) == len(sent) == 4
    redrive.enqueue(conn, "mail", 5)
    assert len(sent) == 4, "the block is over"


def test_nothing_is_committed_and_a_savepoint_takes_the_delivery_with_it(
    conn: Connection, app: redrive.App, sent: list[Any]
) -> None:
    with inline(conn, app):
        redrive.enqueue(conn, "mail", 1)
        with conn.transaction(force_rollback=True):
            redrive.enqueue(conn, "mail", 2, key="two")
        assert not redrive.enqueue(conn, "mail", 2, key="two").already_existed
        assert conn.info.transaction_status is psycopg.pq.TransactionStatus.INTRANS
        assert conn.execute("SELECT count(*) FROM redrive.attempt").fetchone() == (2,)
    assert sent == [1, 2, 2], "what a handler did outside the database is done"


def test_a_refused_enqueue_delivers_nothing_and_leaves_the_transaction_usable(
    conn: Connection, app: redrive.App, sent: list[Any]
) -> None:
    with inline(conn, app):
        redrive.enqueue(conn, "mail", 1, key="one")
        with pytest.raises(redrive.KeyReused):
            redrive.enqueue(conn, "mail", 2, key="one")
        with pytest.raises(redrive.KeyReused):
            redrive.enqueue_many(conn, [NewMessage("mail", 3), NewMessage("mail", 2, key="one")])
        redrive.enqueue(conn, "mail", 4)
    assert sent == [1, 4]


def test_a_failing_handler_fails_as_in_production_and_not_in_the_producer(conn: Connection) -> None:
    app = redrive.App()

    @app.destination("mail")
    def send(message: redrive.Attempt) -> None:
        raise redrive.Terminal("LOCKED")

    with inline(conn, app) as done:
        receipt = redrive.enqueue(conn, "mail", 1)
        assert done.parked == [receipt.id]
        assert_parked(conn, "mail", "LOCKED")


def test_what_a_record_enqueues_is_delivered_too(conn: Connection) -> None:
    app, sent = redrive.App(), list[str]()

    async def then(conn: Any, attempt: redrive.Attempt, settlement: redrive.Settlement) -> None:
        await redrive.aenqueue(conn, "receipt", {"for": attempt.payload})

    app.destination("order", record=then)(lambda message: sent.append(message.destination))
    app.destination("receipt")(lambda message: sent.append(message.destination))
    with inline(conn, app) as done:
        redrive.enqueue(conn, "order", 1)
    assert (sent, len(done.delivered)) == (["order", "receipt"], 2)


def test_another_connection_is_none_of_its_business(
    conn: Connection, app: redrive.App, sent: list[Any], database: str
) -> None:
    with inline(conn, app), psycopg.connect(database) as other:
        redrive.enqueue(other, "mail", 1)
        other.rollback()
    assert sent == []


def test_two_connections_may_each_be_inline(conn: Connection, app: redrive.App, sent: list[Any], database: str) -> None:
    another = redrive.App()
    another.destination("post")(lambda message: sent.append(message.payload))
    with psycopg.connect(database) as other, inline(conn, app), inline(other, another):
        redrive.enqueue(other, "post", 1)
        redrive.enqueue(conn, "mail", 2)
        other.rollback()
    assert sent == [1, 2]


async def test_asynchronous_connections_and_sessions_are_inline_too(
    app: redrive.App, sent: list[Any], database: str
) -> None:
    async with await psycopg.AsyncConnection.connect(database) as conn:
        with inline(conn, app):
            await redrive.aenqueue(conn, "mail", 1)
            await redrive.aenqueue_many(conn, [NewMessage("mail", 2)])
        await conn.rollback()
    parts = psycopg.conninfo.conninfo_to_dict(database)
    engine = create_async_engine("postgresql+psycopg://", connect_args=parts)
    async with AsyncSession(engine) as session:
        with inline(session, app):
            await redrive.aenqueue(session, "mail", 3)
            await redrive.aenqueue(await session.connection(), "mail", 4)
        await session.rollback()
    await engine.dispose()
    assert sent == [1, 2, 3, 4]


def test_a_session_and_its_connection_are_one(app: redrive.App, sent: list[Any], database: str) -> None:
    engine = create_engine("postgresql+psycopg://", connect_args=psycopg.conninfo.conninfo_to_dict(database))
    with Session(engine) as session, inline(session, app):
        redrive.enqueue(session, "mail", 1)
        redrive.enqueue(session.connection(), "mail", 2)
        with session.begin_nested() as savepoint:
            redrive.enqueue(session, "mail", 3)
            savepoint.rollback()
        redrive.enqueue(session, "mail", 4)
        session.rollback()
    engine.dispose()
    assert sent == [1, 2, 3, 4]
