"""The inbox in PostgreSQL: received once, in the order of its key, deferred without loss (G-23)."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import psycopg
import pytest

import redrive
from redrive.errors import DestinationOwned, InvalidValue, NoOpenTransaction
from redrive.events import Events
from redrive.patterns.inbox import Inbox, Received
from redrive.recover.engine_duties import forget_inbox
from redrive.store.runtime.postgres import PostgresStore
from tests.support.racing import Connection, column, is_waiting, together, value
from tests.support.waiting import wait_until

pytestmark = pytest.mark.req("G-23")

INBOX = Inbox("billing")
RECEIVE = "SELECT redrive.inbox_receive_1('billing', %s)"


@pytest.fixture
def conn(database: str) -> Iterator[Connection]:
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS effect (event text)")
        connection.commit()
        yield connection


def process(conn: Connection, event: str, *, order_by: str | None = None) -> Received:
    """As a consumer does: the inbox row and its own write are one transaction."""
    with conn.transaction():
        received = INBOX.receive(conn, event, order_by=order_by)
        if received is Received.FIRST:
            conn.execute("INSERT INTO effect VALUES (%s)", [event])
    return received


def rows(conn: Connection, query: str) -> list[Any]:
    return conn.execute(query.encode()).fetchall()


def end_all(conn: Connection) -> None:
    """Whatever waits in the engine is over."""
    with conn.transaction():
        for table in ("pending", "lease", "parked"):
            conn.execute(f"DELETE FROM redrive.{table}".encode())


def park_all(conn: Connection) -> None:
    """Whatever is pending is dead, and halts its key."""
    conn.execute("""
        INSERT INTO redrive.parked (
            id, reason, parked_at, first_failed_at, last_failed_at, tenant, destination, stage, version, level,
            lane, sequence, attempt, spent, lookups, crashes, error_class, exhausted, halts, context)
        SELECT id, 'dead', now(), now(), now(), tenant, destination, stage, version, level,
               lane, sequence, 1, 1, 0, 0, 'BAD', false, lane IS NOT NULL, '{}' FROM redrive.pending""")
    conn.execute("DELETE FROM redrive.pending")


def test_a_redelivery_is_seen_and_has_no_effect(conn: Connection) -> None:
    assert [process(conn, "e-1") for _ in range(3)] == [Received.FIRST, Received.SEEN, Received.SEEN]
    assert rows(conn, "SELECT event FROM effect") == [("e-1",)]


def test_what_was_rolled_back_was_not_received(conn: Connection) -> None:
    """The inbox row and the consumer's writes are one transaction: neither stays without the other."""
    with conn.transaction(force_rollback=True):
        assert INBOX.receive(conn, "e-1") is Received.FIRST
        conn.execute("INSERT INTO effect VALUES ('e-1')")
    assert rows(conn, "SELECT message_id FROM redrive.inbox") == []
    assert process(conn, "e-1") is Received.FIRST
    assert rows(conn, "SELECT event FROM effect") == [("e-1",)]


def test_each_consumer_has_an_inbox_of_its_own(conn: Connection) -> None:
    assert Inbox("billing").receive(conn, "e-1") is Received.FIRST
    assert Inbox("search").receive(conn, "e-1") is Received.FIRST


def test_of_eight_sessions_that_receive_one_message_one_processes_it(conn: Connection, database: str) -> None:
    for event in ("e-1", "e-2", "e-3"):
        received = together(database, [partial(process, event=event)] * 8)
        assert sorted(received) == ["first"] + ["seen"] * 7
    assert sorted(rows(conn, "SELECT event FROM effect")) == [("e-1",), ("e-2",), ("e-3",)]


def test_a_message_that_another_session_is_processing_is_waited_for(conn: Connection, database: str) -> None:
    with psycopg.connect(database) as other, ThreadPoolExecutor(1) as pool, psycopg.connect(database) as observer:
        assert INBOX.receive(other, "e-1") is Received.FIRST
        waiting = pool.submit(process, conn, "e-1")
        wait_until(lambda: is_waiting(observer, conn), seconds=10, what="the other session")
        other.rollback()
        assert waiting.result(10) is Received.FIRST


def test_messages_of_one_key_are_received_one_after_the_other(conn: Connection, database: str) -> None:
    """Two workers have one key while a broker gives it from one to the other."""
    with psycopg.connect(database) as other, ThreadPoolExecutor(1) as pool, psycopg.connect(database) as observer:
        assert INBOX.receive(other, "e-1", order_by="k") is Received.FIRST
        assert process(conn, "e-0", order_by="another key") is Received.FIRST
        waiting = pool.submit(process, conn, "e-2", order_by="k")
        wait_until(lambda: is_waiting(observer, conn), seconds=10, what="the other session")
        INBOX.defer(other, "e-1", {"n": 1}, order_by="k")
        other.commit()
        assert waiting.result(10) is Received.BEHIND  # it sees what was deferred while it waited


def test_of_two_workers_that_are_given_one_reserved_event_the_second_waits_and_processes_nothing(
    conn: Connection, database: str
) -> None:
    """Without an ordering key only the row of the inbox keeps them apart."""
    conn.execute("SELECT redrive.inbox_reserve_1('billing', 'big', '{}', 'application/json')")
    park_all(conn)
    conn.commit()
    with psycopg.connect(database) as other, ThreadPoolExecutor(1) as pool, psycopg.connect(database) as observer:
        assert value(other, RECEIVE, "big") == "reserved"
        waiting = pool.submit(value, conn, RECEIVE, "big")
        wait_until(lambda: waiting.done() or is_waiting(observer, conn), seconds=10, what="the other worker")
        other.execute("SELECT redrive.inbox_fulfil_1('billing', 'big')")
        other.commit()
        assert waiting.result(10) == "seen"
    assert rows(conn, "SELECT outcome FROM redrive.inbox") == [("processed",)]


def test_a_reserved_event_of_a_worker_that_gave_up_goes_to_the_one_that_waited(conn: Connection, database: str) -> None:
    conn.execute("SELECT redrive.inbox_reserve_1('billing', 'big', '{}', 'application/json')")
    park_all(conn)
    conn.commit()
    with psycopg.connect(database) as other, ThreadPoolExecutor(1) as pool, psycopg.connect(database) as observer:
        assert value(other, RECEIVE, "big") == "reserved"
        waiting = pool.submit(value, conn, RECEIVE, "big")
        wait_until(lambda: waiting.done() or is_waiting(observer, conn), seconds=10, what="the other worker")
        other.rollback()
        assert waiting.result(10) == "reserved"


def test_what_is_behind_a_deferred_message_is_not_processed_until_that_is_over(conn: Connection) -> None:
    INBOX.defer(conn, "e-1", {"n": 1}, order_by="k")
    conn.commit()
    assert process(conn, "e-2", order_by="k") is Received.BEHIND
    assert process(conn, "e-2", order_by="k") is Received.BEHIND  # nothing was written
    assert process(conn, "e-3", order_by="other") is Received.FIRST
    assert process(conn, "e-4") is Received.FIRST
    assert process(conn, "e-1", order_by="k") is Received.SEEN
    end_all(conn)
    assert process(conn, "e-2", order_by="k") is Received.FIRST


@pytest.mark.parametrize("table", ["pending", "lease", "parked"])
def test_a_message_waits_in_the_engine_wherever_it_is_there(conn: Connection, table: str) -> None:
    INBOX.defer(conn, "e-1", {"n": 1}, order_by="k")
    if table == "lease":
        worker = "00000000-0000-0000-0000-000000000001"
        claim = "SELECT * FROM redrive.claim_1(%s, ARRAY['billing'], ARRAY[1::smallint], ARRAY[1], 60)"
        assert len(conn.execute(claim, [worker]).fetchall()) == 1
    if table == "parked":
        park_all(conn)
    conn.commit()
    assert [n for (n,) in rows(conn, f"SELECT count(*) FROM redrive.{table}")] == [1]
    assert process(conn, "e-2", order_by="k") is Received.BEHIND
    if table == "parked":  # dead, where the dead do not halt
        conn.execute("UPDATE redrive.parked SET halts = false")
        assert process(conn, "e-2", order_by="k") is Received.FIRST


def test_a_failed_message_is_deferred_in_the_transaction_that_received_it(conn: Connection) -> None:
    with conn.transaction():
        assert INBOX.receive(conn, "e-1", order_by="k") is Received.FIRST
        with conn.transaction(force_rollback=True):
            conn.execute("INSERT INTO effect VALUES ('e-1')")
        deferred = INBOX.defer(conn, "e-1", {"n": 1}, order_by="k", kind="order.placed", headers={"ce-id": "1"})
    assert deferred.is_new
    assert rows(conn, "SELECT event FROM effect") == []
    found = rows(conn, "SELECT outcome, deferred_as FROM redrive.inbox")
    assert found == [("deferred", deferred.id)]
    query = "SELECT destination, kind, key, order_by, headers, convert_from(body, 'UTF8') FROM redrive.message"
    message = rows(conn, query)
    assert message == [("billing", "order.placed", "inbox:billing:e-1", "billing:k", {"ce-id": "1"}, '{"n":1}')]


def test_a_message_is_deferred_once(conn: Connection, database: str) -> None:
    def defer(connection: Connection) -> bool:
        with connection.transaction():
            return INBOX.defer(connection, "e-1", {"n": 1}).is_new

    assert sorted(together(database, [defer] * 8)) == [False] * 7 + [True]
    assert len(rows(conn, "SELECT id FROM redrive.message")) == 1


def test_what_another_transaction_processed_is_not_deferred(conn: Connection) -> None:
    """As after a consumer that was cut off while it committed."""
    process(conn, "e-1")
    with conn.transaction():
        assert INBOX.defer(conn, "e-1", {"n": 1}) == (None, False)
    assert rows(conn, "SELECT outcome FROM redrive.inbox") == [("processed",)]
    assert rows(conn, "SELECT id FROM redrive.message") == []


def test_deferred_messages_of_a_key_keep_their_order(conn: Connection) -> None:
    for n in range(5):
        with conn.transaction():
            received = INBOX.receive(conn, f"e-{n}", order_by="k" * 500)
            assert received is (Received.BEHIND if n else Received.FIRST)
            INBOX.defer(conn, f"e-{n}", n, order_by="k" * 500)
    found = rows(conn, "SELECT convert_from(body, 'UTF8') FROM redrive.message ORDER BY sequence")
    assert found == [(str(n),) for n in range(5)]
    assert len(rows(conn, "SELECT id FROM redrive.stream")) == 1


def test_another_payload_under_a_forgotten_id_is_not_lost(conn: Connection) -> None:
    first = INBOX.defer(conn, "e-1", {"n": 1})
    conn.execute("DELETE FROM redrive.inbox")
    assert INBOX.defer(conn, "e-1", {"n": 1}).id == first.id
    conn.execute("DELETE FROM redrive.inbox")
    assert INBOX.defer(conn, "e-1", {"n": 2}).id != first.id


async def test_old_rows_are_forgotten_but_not_those_of_open_messages(conn: Connection, database: str) -> None:
    conn.execute("""
        INSERT INTO redrive.inbox (consumer, message_id, received_at)
        SELECT 'billing', n::text, now() - interval '31 days' FROM generate_series(1, 25) AS n""")
    INBOX.defer(conn, "waits", {"n": 1})
    conn.execute("UPDATE redrive.inbox SET received_at = now() - interval '40 days' WHERE message_id = 'waits'")
    INBOX.receive(conn, "young")
    conn.commit()
    async with PostgresStore(database, connections=1) as store:
        assert await forget_inbox(store, after_seconds=30 * 86_400, batch=10, events=Events()) == "25 forgotten"
        assert column(conn, "SELECT message_id FROM redrive.inbox ORDER BY 1") == ["waits", "young"]
        end_all(conn)
        conn.commit()
        assert await forget_inbox(store, after_seconds=30 * 86_400, events=Events()) == "1 forgotten"
    assert process(conn, "7") is Received.FIRST  # a redelivery after that is processed again


def test_a_producer_may_use_the_inbox_and_not_read_it(conn: Connection) -> None:
    conn.execute("SET ROLE redrive_producer")
    assert INBOX.receive(conn, "e-1", order_by="k") is Received.FIRST
    assert INBOX.defer(conn, "e-1", {"n": 1}, order_by="k").is_new
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        conn.execute("SELECT * FROM redrive.inbox")


def test_a_reader_of_one_tenant_does_not_see_the_inbox(conn: Connection) -> None:
    INBOX.receive(conn, "e-1")
    conn.execute("SET ROLE redrive_viewer")
    for tenant, seen in (("acme", 0), ("*", 1)):
        conn.execute("SELECT set_config('redrive.tenant', %s, true)", [tenant])
        assert value(conn, "SELECT count(*) FROM redrive.inbox") == seen


@pytest.mark.parametrize(
    ("consumer", "message_id", "order_by"),
    [
        ("", "e", None),
        ("c" * 101, "e", None),
        ("c", "", None),
        ("c", "e" * 501, None),
        ("c", "e", ""),
        ("c", "e", "k" * 1001),
    ],
)
def test_python_and_sql_refuse_the_same_values(
    conn: Connection, consumer: str, message_id: str, order_by: str | None
) -> None:
    with pytest.raises(InvalidValue):
        Inbox(consumer).receive(conn, message_id, order_by=order_by)
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        conn.execute("SELECT redrive.inbox_receive_1(%s, %s, %s)", [consumer, message_id, order_by])


def test_the_longest_values_are_accepted(conn: Connection) -> None:
    assert Inbox("\N{SNOWMAN}" * 100).receive(conn, "\N{SNOWMAN}" * 500, order_by="k" * 1000) is Received.FIRST


@pytest.mark.parametrize("level", [psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE])
def test_order_needs_a_snapshot_that_is_new(conn: Connection, level: psycopg.IsolationLevel) -> None:
    conn.isolation_level = level
    assert INBOX.receive(conn, "e-1") is Received.FIRST
    with pytest.raises(InvalidValue, match="read committed"):
        INBOX.receive(conn, "e-2", order_by="k")


def test_outside_a_transaction_nothing_is_received(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection, pytest.raises(NoOpenTransaction):
        INBOX.receive(connection, "e-1")


def test_nothing_is_deferred_into_a_destination_of_a_system(conn: Connection) -> None:
    conn.execute("INSERT INTO redrive.destination_owner (prefix, system) VALUES ('bank:', 'bank')")
    with pytest.raises(DestinationOwned):
        Inbox("bank:in").defer(conn, "e-1", {"n": 1})


async def test_an_asynchronous_connection_receives_and_defers(database: str) -> None:
    async with await psycopg.AsyncConnection.connect(database) as connection:
        assert await INBOX.areceive(connection, "e-1") is Received.FIRST
        deferred = await INBOX.adefer(connection, "e-1", {"n": 1})
        assert deferred.id is not None
        assert (await redrive.astatus(connection, deferred.id)).state == "pending"
