"""On whose connection: any psycopg 3 one with a transaction, whatever its cursors and rows are like (ruling 18)."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row, kwargs_row
from sqlalchemy import create_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

import redrive
from redrive.errors import InvalidValue, NoOpenTransaction, SchemaError, UnsupportedConnection, UsageError
from redrive.message import NewMessage
from redrive.produce import drivers

FUTURE = datetime(2090, 1, 1, tzinfo=UTC)
MANY = [NewMessage("mail", n, key=f"many{n}") for n in range(3)]


@pytest.fixture
def connection(database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database) as connection:
        yield connection


def count(connection: psycopg.Connection[Any]) -> int:
    with psycopg.Cursor(connection) as cursor:
        row = cursor.execute("SELECT count(*) FROM redrive.message").fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.req("G-01")
def test_autocommit_without_a_transaction_is_refused_with_what_to_write(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        for call in (lambda: redrive.enqueue(connection, "mail", 1), lambda: redrive.enqueue_many(connection, MANY)):
            with pytest.raises(NoOpenTransaction, match=r"with conn\.transaction\(\):"):
                call()
        assert count(connection) == 0
        with connection.transaction():
            redrive.enqueue(connection, "mail", 1)
            redrive.enqueue_many(connection, MANY)
        assert count(connection) == 4


@pytest.mark.req("G-01")
async def test_autocommit_of_an_asynchronous_connection_is_refused_too(database: str) -> None:
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
        with pytest.raises(NoOpenTransaction):
            await redrive.aenqueue(connection, "mail", 1)
        async with connection.transaction():
            assert (await redrive.aenqueue(connection, "mail", 1)).state == "pending"


@pytest.mark.req("G-01")
def test_no_call_ends_or_begins_a_transaction_of_the_callers(connection: psycopg.Connection[Any]) -> None:
    idle = psycopg.pq.TransactionStatus.IDLE
    open_ = psycopg.pq.TransactionStatus.INTRANS
    assert connection.info.transaction_status is idle
    redrive.enqueue_many(connection, MANY)  # opened by the statement, as any other would
    assert connection.info.transaction_status is open_
    connection.rollback()
    redrive.enqueue(connection, "mail", 1, key="k", expires_at=None)
    assert connection.info.transaction_status is open_
    connection.rollback()
    assert count(connection) == 0


def test_a_failed_transaction_is_refused_with_what_to_do(connection: psycopg.Connection[Any]) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        connection.execute("SELECT 1/0")
    with pytest.raises(UsageError, match="roll it back"):
        redrive.enqueue(connection, "mail", 1)
    connection.rollback()
    redrive.enqueue(connection, "mail", 1)


async def test_a_failed_asynchronous_transaction_is_refused_too(database: str) -> None:
    async with await psycopg.AsyncConnection.connect(database) as connection:
        with pytest.raises(psycopg.errors.DivisionByZero):
            await connection.execute("SELECT 1/0")
        with pytest.raises(UsageError, match="roll it back"):
            await redrive.aenqueue(connection, "mail", 1)
        await connection.rollback()


def test_a_closed_connection_says_so_in_the_drivers_words(database: str) -> None:
    connection = psycopg.connect(database)
    connection.close()
    with pytest.raises(psycopg.OperationalError, match="closed"):
        redrive.enqueue(connection, "mail", 1)


@pytest.mark.req("G-19")
@pytest.mark.parametrize("thing", [None, "postgresql://", 5, object(), sqlite3.connect(":memory:")])
def test_what_is_no_connection_is_refused_with_its_type_and_what_is_known(thing: Any) -> None:
    with pytest.raises(UnsupportedConnection) as refused:
        redrive.enqueue(thing, "mail", 1)
    assert type(thing).__name__ in str(refused.value)
    assert "psycopg.Connection, psycopg.Cursor" in str(refused.value)
    assert "Async" not in str(refused.value)


@pytest.mark.req("G-19")
async def test_the_call_and_the_connection_must_both_be_synchronous_or_not(database: str) -> None:
    with psycopg.connect(database) as connection:
        with pytest.raises(UnsupportedConnection, match=r"psycopg\.Connection is for redrive\.enqueue"):
            await redrive.aenqueue(connection, "mail", 1)
        with pytest.raises(UnsupportedConnection, match="is for redrive"):
            await redrive.aenqueue_many(connection.cursor(), MANY)
    async with await psycopg.AsyncConnection.connect(database) as asynchronous:
        with pytest.raises(UnsupportedConnection, match=r"psycopg\.AsyncConnection is for await redrive\.aenqueue"):
            redrive.enqueue(asynchronous, "mail", 1)


def test_every_known_class_exists_in_its_driver() -> None:
    for name in drivers.KNOWN:
        module, _, kind = name.rpartition(".")
        assert drivers._known_name(getattr(import_module(module), kind)) == name


def test_a_subclass_of_a_connection_is_a_connection(database: str) -> None:
    class Connection(psycopg.Connection[Any]):
        pass

    with Connection.connect(database) as connection:
        assert redrive.enqueue(connection, "mail", 1).state == "pending"


@pytest.mark.parametrize("kind", [psycopg.Cursor, psycopg.ClientCursor, psycopg.RawCursor])
def test_the_cursor_class_and_the_row_factory_of_the_caller_do_not_matter(database: str, kind: Any) -> None:
    with psycopg.connect(database, cursor_factory=kind, row_factory=dict_row) as connection:
        first = redrive.enqueue(connection, "mail", 1, key="k")
        with connection.cursor(row_factory=kwargs_row(lambda **row: pytest.fail(str(row)))) as cursor:
            assert redrive.enqueue(cursor, "mail", 1, key="k").id == first.id
            assert len(redrive.enqueue_many(cursor, MANY)) == 3


def test_the_callers_cursor_keeps_its_result(connection: psycopg.Connection[Any]) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT generate_series(1, 3)")
        assert cursor.fetchone() == (1,)
        redrive.enqueue(cursor, "mail", 1)
        assert cursor.fetchall() == [(2,), (3,)]


async def test_an_asynchronous_cursor_will_do_too(database: str) -> None:
    async with await psycopg.AsyncConnection.connect(database) as connection, connection.cursor() as cursor:
        await cursor.execute("SELECT 7")
        receipt = await redrive.aenqueue(cursor, "mail", 1, key="k")
        assert (await redrive.aenqueue_many(cursor, [NewMessage("mail", 1, key="k")]))[0].id == receipt.id
        assert await cursor.fetchone() == (7,)


def test_a_named_cursor_will_do_too(connection: psycopg.Connection[Any]) -> None:
    with connection.cursor("named") as cursor:
        cursor.execute("SELECT generate_series(1, 3)")
        redrive.enqueue(cursor, "mail", 1)
        assert cursor.fetchall() == [(1,), (2,), (3,)]


def test_a_pipeline_whose_begin_is_not_answered_yet_counts_as_a_transaction(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        with connection.pipeline():
            connection.execute("BEGIN")
            redrive.enqueue(connection, "mail", 1)
            redrive.enqueue_many(connection, MANY)
            connection.execute("COMMIT")
        with connection.pipeline(), pytest.raises(NoOpenTransaction):
            redrive.enqueue(connection, "mail", 1)
        assert count(connection) == 4


async def test_an_asynchronous_pipeline_likewise(database: str) -> None:
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
        async with connection.pipeline():
            await connection.execute("BEGIN")
            assert (await redrive.aenqueue(connection, "mail", 1)).state == "pending"
            await connection.execute("COMMIT")


def test_prepared_statements_and_none_give_the_same(database: str) -> None:
    for threshold in (0, None):
        with psycopg.connect(database, prepare_threshold=threshold) as connection:
            for n in range(8):
                redrive.enqueue(connection, "mail", n, key=f"{threshold}{n}", headers={"n": str(n)} if n % 2 else None)
                redrive.enqueue_many(
                    connection, [NewMessage("mail", n, key="k" if n % 2 else None, on_other_payload="first_wins")]
                )
            connection.rollback()


@pytest.mark.req("G-19")
async def test_a_database_without_the_schema_names_the_command_that_helps(empty_database: str) -> None:
    with psycopg.connect(empty_database) as connection:
        with pytest.raises(SchemaError, match="redrive db upgrade"):
            redrive.enqueue(connection, "mail", 1)
        connection.rollback()
        connection.execute("CREATE SCHEMA redrive")
        with pytest.raises(SchemaError, match="older than this version"):
            redrive.enqueue_many(connection, [NewMessage("mail", 1)])
        connection.rollback()
    async with await psycopg.AsyncConnection.connect(empty_database) as asynchronous:
        with pytest.raises(SchemaError, match="redrive db upgrade"):
            await redrive.aenqueue(asynchronous, "mail", 1)


def test_what_the_verb_refuses_itself_is_an_invalid_value(connection: psycopg.Connection[Any]) -> None:
    """Only a bound that the verb knows and we do not; it cannot happen while the two agree."""
    connection.execute(
        "CREATE OR REPLACE FUNCTION redrive.new_id() RETURNS uuid LANGUAGE plpgsql AS"
        " $$BEGIN RAISE EXCEPTION 'level is 7; too much.' USING ERRCODE = '22023'; END$$"
    )
    with pytest.raises(InvalidValue, match="level is 7; too much"):
        redrive.enqueue(connection, "mail", 1)


def statements_of(database: str, call: Any) -> list[str]:
    """The statements that the server was sent inside the caller's transaction, read from the protocol's trace."""
    with psycopg.connect(database) as connection, tempfile.TemporaryFile() as trace:
        connection.execute("SELECT 1")
        connection.pgconn.trace(trace.fileno())
        connection.pgconn.set_trace_flags(psycopg.pq.Trace.SUPPRESS_TIMESTAMPS)
        call(connection)
        connection.pgconn.untrace()
        trace.seek(0)
        lines = [line.split("\t") for line in trace.read().decode(errors="replace").splitlines()]
    return [fields[2] for fields in lines if fields[0] == "F" and fields[2] in {"Execute", "Query"}]


@pytest.mark.req("G-01")
@pytest.mark.parametrize(
    ("call", "number"),
    [
        (lambda c: redrive.enqueue(c, "mail", 1), 1),
        (lambda c: redrive.enqueue(c, "mail", 1, key="k", headers={"a": "b"}, priority="high"), 1),
        (lambda c: redrive.enqueue(c, "mail", 1, expires_at=FUTURE, due_at=FUTURE - timedelta(1)), 1),
        (lambda c: redrive.enqueue_many(c, []), 0),
        (lambda c: redrive.enqueue_many(c, [NewMessage("mail", n, expires_at=FUTURE) for n in range(99)]), 1),
        (lambda c: redrive.enqueue_many(c, [NewMessage("mail", 1, key="k", on_other_payload="first_wins")]), 1),
        (lambda c: redrive.enqueue_many(c, [NewMessage("mail", 1, key="k")]), 3),  # with a savepoint, to be undoable
    ],
)
def test_a_call_is_one_statement(database: str, call: Any, number: int) -> None:
    assert len(statements_of(database, call)) == number


def test_a_wait_on_a_session_keeps_what_the_session_has_loaded(database: str) -> None:
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(database), poolclass=NullPool)
    with Session(engine, expire_on_commit=False) as session:
        receipt = redrive.enqueue(session, "mail", 1)
        redrive.cancel(session, receipt.id)
        session.commit()
        assert redrive.wait(session, receipt.id).state == "cancelled"
        assert not session.in_transaction()  # a rollback of its own would have expired its objects
