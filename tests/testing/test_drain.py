"""`redrive.testing`: what a team's own tests stand on, inside a transaction that is never committed."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

import redrive
from redrive.errors import UnsupportedConnection
from redrive.testing import adrain, assert_enqueued, drain, enqueued
from tests.support.doors import DOORS, django_connection


@pytest.fixture
def app() -> redrive.App:
    made = redrive.App()
    made.sent = []  # type: ignore[attr-defined]

    async def record(conn: Any, attempt: redrive.Attempt, settlement: redrive.Settlement) -> None:
        if isinstance(settlement.answer, redrive.Delivered):
            await conn.execute("INSERT INTO sent VALUES (%s)", [attempt.payload["n"]])

    @made.destination("mail", record=record)
    def send(message: redrive.Attempt) -> None:
        if message.payload["n"] == 13:
            raise redrive.Terminal("UNLUCKY")
        made.sent.append(message.payload["n"])  # type: ignore[attr-defined]

    return made


def seen_by_others(database: str) -> int:
    with psycopg.connect(database) as connection:
        row = connection.execute("SELECT count(*) FROM redrive.message").fetchone()
        assert row is not None
        return int(row[0])


def test_an_uncommitted_message_is_delivered_and_all_of_it_is_gone_with_the_rollback(
    database: str, app: redrive.App
) -> None:
    with psycopg.connect(database) as conn:
        conn.execute("CREATE TABLE sent (n int)")
        ids = [redrive.enqueue(conn, "mail", {"n": n}, order_by="one key").id for n in (1, 2, 13)]
        done = drain(conn, app)
        assert (done.delivered, done.parked) == (ids[:2], ids[2:])
        assert conn.execute("SELECT n FROM sent ORDER BY n").fetchall() == [(1,), (2,)]
        assert drain(conn, app).delivered == [], "once"
        assert seen_by_others(database) == 0
        conn.rollback()
        assert conn.execute("SELECT count(*) FROM redrive.message").fetchone() == (0,)
        assert conn.execute("SELECT count(*) FROM redrive.relay").fetchone() == (0,)


async def test_an_asynchronous_connection_drains_too(database: str, app: redrive.App) -> None:
    async with await psycopg.AsyncConnection.connect(database) as conn:
        await conn.execute("CREATE TABLE sent (n int)")
        receipt = await redrive.aenqueue(conn, "mail", {"n": 1})
        assert (await adrain(conn, app)).delivered == [receipt.id]
        await conn.rollback()


def test_a_session_of_sqlalchemy_and_a_connection_of_django_drain_too(database: str, app: redrive.App) -> None:
    engine = create_engine("postgresql+psycopg://", connect_args=psycopg.conninfo.conninfo_to_dict(database))
    with Session(engine) as session:
        session.connection().exec_driver_sql("CREATE TABLE sent (n int)")
        receipt = redrive.enqueue(session, "mail", {"n": 1})
        assert drain(session, app).delivered == [receipt.id]
        session.rollback()
    engine.dispose()
    connection = django_connection(database)
    connection.set_autocommit(False)
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE sent (n int)")
    receipt = redrive.enqueue(connection, "mail", {"n": 2})
    assert drain(connection, app).delivered == [receipt.id]
    connection.rollback()
    connection.close()
    assert seen_by_others(database) == 0


def test_what_is_to_be_tried_later_stays(database: str) -> None:
    app = redrive.App()

    @app.destination("mail")
    def send(message: redrive.Attempt) -> None:
        raise redrive.Retryable("LATER", retry_after=60)

    with psycopg.connect(database) as conn:
        receipt = redrive.enqueue(conn, "mail", 1)
        done = drain(conn, app)
        assert (done.delivered, done.retried) == ([], [receipt.id])
        conn.rollback()


def test_a_bug_of_the_handler_is_no_error_of_the_drain_but_seen_in_its_outcome(database: str) -> None:
    app = redrive.App()

    @app.destination("mail", in_doubt="hold")
    def send(message: redrive.Attempt) -> None:
        raise ZeroDivisionError

    with psycopg.connect(database) as conn:
        receipt = redrive.enqueue(conn, "mail", 1)
        assert drain(conn, app).parked == [receipt.id]
        conn.rollback()


@pytest.mark.parametrize("door", [name for name in DOORS if "async" not in name])
async def test_assert_enqueued_counts_what_fits_through_every_synchronous_door(door: str, database: str) -> None:
    async with DOORS[door](database) as producer:
        await producer.enqueue("mail", {"n": 1}, key="one", kind="welcome", tenant="acme")
        await producer.enqueue("mail", b"\x00", content_type="image/png")
        conn = producer.connection
        assert_enqueued(conn, "mail", {"n": 1})
        assert_enqueued(conn, "mail", key="one", kind="welcome", tenant="acme")
        assert_enqueued(conn, "mail", count=2)
        assert_enqueued(conn, "mail", {"n": 2}, count=0)
        assert enqueued(conn, "mail")[1].payload == b"\x00"
        for wrong in ({"payload": {"n": 2}}, {"key": "two"}, {"count": 1}):
            with pytest.raises(AssertionError, match="There are:"):
                assert_enqueued(conn, "mail", **wrong)
        with pytest.raises(TypeError, match="nonsense"):
            assert_enqueued(conn, "mail", nonsense=1)


async def test_a_driver_that_cannot_carry_a_store_is_refused_with_what_to_do(database: str) -> None:
    async with DOORS["psycopg2"](database) as producer:
        with pytest.raises(UnsupportedConnection, match="psycopg 3"):
            drain(producer.connection, redrive.App())
