"""The writer: an event in the caller's transaction, once by its key; a refusal writes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from redrive.errors import InvalidPayload, InvalidValue, NoOpenTransaction
from redrive.systems import tenant
from tests.support.doors import DOORS, Asynchronous
from tests.systems.tenant.conftest import TYPES, Conn, published, row

pytestmark = pytest.mark.req("T-01")
WRITER = tenant.OutboxWriter(event_types=TYPES)
COUNT = "SELECT count(*) FROM redrive.message WHERE tenant = %s"


def test_an_event_is_there_with_its_transaction_and_gone_with_it(outbox_database: str, acme: str) -> None:
    with psycopg.connect(outbox_database) as conn:
        added = WRITER.add(conn, acme, published())
        conn.rollback()
        assert conn.execute(COUNT, [acme]).fetchone() == (0,)
        again = WRITER.add(conn, acme, published())
        conn.commit()
        assert (again.key, again.already_existed, again.state) == (added.key, False, "pending")
        assert conn.execute(COUNT, [acme]).fetchone() == (1,)


@pytest.mark.seed("003", "TryAddOutbox_Twice_SameKey_SingleRowExists")
@pytest.mark.req("T-11")
def test_a_key_that_is_known_is_a_success_whatever_the_payload(conn: Conn, acme: str) -> None:
    first = WRITER.add(conn, acme, published(payload="one"))
    second = WRITER.add(conn, acme, published(payload="two"))
    third = WRITER.try_add(conn, acme, first.key, lambda: pytest.fail("the key is known"))
    assert (second.id, second.already_existed) == (first.id, True) == (third.id, third.already_existed)
    assert conn.execute(COUNT, [acme]).fetchone() == (1,)
    assert row(conn, first.id)["Payload"] == {"payload": "one"}


@pytest.mark.req("T-11")
def test_try_add_calls_the_factory_for_a_new_key_only(conn: Conn, acme: str) -> None:
    made = []
    key = uuid4()

    def factory() -> tenant.Event:
        made.append(1)
        return published()

    answers = [WRITER.try_add(conn, acme, given, factory) for given in (key, str(key), key)]
    assert [one.already_existed for one in answers] == [False, True, True]
    assert (made, {one.key for one in answers}) == ([1], {key})


@pytest.mark.seed("003", "Insert_SameKey_DifferentTenant")
def test_a_key_belongs_to_its_tenant(conn: Conn, acme: str) -> None:
    key = uuid4()
    added = [WRITER.add(conn, one, published(), key=key) for one in (acme, f"{acme}-2")]
    assert [one.already_existed for one in added] == [False, False]
    assert added[0].id != added[1].id


def test_an_event_without_a_key_of_its_own_is_new_each_time(conn: Conn, acme: str) -> None:
    added = [WRITER.add(conn, acme, tenant.Event("NoteTaken", {"n": 1})) for _ in range(2)]
    assert added[0].key != added[1].key
    assert not any(one.already_existed for one in added)


def test_an_event_is_a_message_of_the_engine_with_its_type_key_and_tenant(conn: Conn, acme: str) -> None:
    event = tenant.Event("InstanceCreated", {"i": 1}, parts={"entity": "i"}, order_by="i", headers={"trace": "t"})
    added = WRITER.add(conn, acme, event)
    found = conn.execute(
        "SELECT destination, tenant, kind, key, order_by, headers ->> 'trace' FROM redrive.message WHERE id = %s",
        [added.id],
    ).fetchone()
    assert found == ("tenant.events", acme, "InstanceCreated", str(added.key), "i", "t")


async def test_the_asynchronous_calls_do_the_same(outbox_database: str, acme: str) -> None:
    async with await psycopg.AsyncConnection.connect(outbox_database) as conn:
        first = await WRITER.aadd(conn, acme, published())
        again = await WRITER.atry_add(conn, acme, first.key, lambda: pytest.fail("the key is known"))
        new = await WRITER.atry_add(conn, acme, uuid4(), published)
        assert (again.id, again.already_existed, new.already_existed) == (first.id, True, False)
        await conn.rollback()


@pytest.mark.req("T-11")
@pytest.mark.parametrize("door", list(DOORS))
async def test_add_and_try_add_are_in_the_callers_transaction_on_every_connection(
    outbox_database: str, acme: str, door: str
) -> None:
    """A known key is a success that leaves the transaction usable; a rollback takes everything away."""
    query = f"SELECT count(*) FROM redrive_tenant.outbox_messages WHERE tenant_id = '{acme}'"
    async with DOORS[door](outbox_database) as producer:
        is_async = isinstance(producer, Asynchronous)
        add, try_add = (WRITER.aadd, WRITER.atry_add) if is_async else (WRITER.add, WRITER.try_add)

        async def answer(call: Any) -> tenant.Added:
            added: tenant.Added = await call if is_async else call
            return added

        for end, left in ((producer.rollback, 0), (producer.commit, 2)):
            first = await answer(add(producer.connection, acme, published()))
            again = await answer(add(producer.connection, acme, published(payload="another")))
            known = await answer(try_add(producer.connection, acme, first.key, lambda: pytest.fail("it is known")))
            new = await answer(try_add(producer.connection, acme, uuid4(), published))
            assert [one.already_existed for one in (first, again, known, new)] == [False, True, True, False]
            assert first.id == again.id == known.id != new.id
            assert await producer.rows(query) == [(2,)]
            await end()
            assert await producer.rows(query) == [(left,)]


@pytest.mark.req("G-19")
def test_what_is_refused_writes_nothing_and_leaves_the_transaction_usable(conn: Conn, acme: str) -> None:
    small = tenant.OutboxWriter(event_types=TYPES, payload_bytes_max=10)
    cases: list[tuple[Callable[[], object], type[Exception], str]] = [
        (lambda: WRITER.add(conn, acme, tenant.Event("Unheard", {})), InvalidValue, "There is no event type 'Unheard'"),
        (lambda: WRITER.add(conn, acme, tenant.Event("DefinitionPublished", {})), InvalidValue, "entity is missing"),
        (lambda: WRITER.add(conn, acme, published(), key="7"), InvalidValue, "key is '7'; it must be a UUID"),
        (lambda: WRITER.try_add(conn, acme, "7", published), InvalidValue, "it must be a UUID"),
        (lambda: WRITER.add(conn, "", published()), InvalidValue, "tenant"),
        (
            lambda: WRITER.add(conn, acme, tenant.Event("NoteTaken", {}, parts={"entity": 1})),
            InvalidValue,
            "are not keyed",
        ),
        (
            lambda: small.add(conn, acme, tenant.Event("NoteTaken", {"text": "x"})),
            InvalidPayload,
            r"has 12 bytes; at most 10 are allowed",
        ),
        (lambda: WRITER.add(conn, acme, tenant.Event("NoteTaken", {1, 2})), InvalidPayload, "payload"),
        (lambda: WRITER.add(conn, acme, {"NoteTaken": {}}), InvalidValue, "event is of type dict; it must be an Event"),  # type: ignore[arg-type]
        (lambda: WRITER.try_add(conn, acme, uuid4(), lambda: None), InvalidValue, "event is of type NoneType"),  # type: ignore[arg-type,return-value]
        (lambda: WRITER.add(conn, acme, tenant.Event("TaskClaimed", {}, parts=None)), InvalidValue, "parts is of type"),  # type: ignore[arg-type]
    ]
    for call, error, said in cases:
        with pytest.raises(error, match=said):
            call()
    assert small.add(conn, acme, tenant.Event("NoteTaken", {"t": "xx"})).state == "pending"
    assert conn.execute(COUNT, [acme]).fetchone() == (1,)


@pytest.mark.req("G-19")
@pytest.mark.parametrize("most", [0, -1, 262_145, True, "10", 10.0])
def test_the_size_of_a_payload_has_bounds(most: Any) -> None:
    with pytest.raises(InvalidValue, match=r"payload_bytes_max is .*; it must be a whole number from 1 to 262,144"):
        tenant.Outbox(TYPES, payload_bytes_max=most)
    assert [tenant.Outbox(TYPES, payload_bytes_max=fits).writer.payload_bytes_max for fits in (1, 262_144)] == [
        1,
        262_144,
    ]


@pytest.mark.req("G-19")
def test_a_payload_as_large_as_allowed_is_taken_and_one_byte_more_is_not(conn: Conn, acme: str) -> None:
    text = "x" * (262_144 - 2)  # and two quotes
    assert WRITER.add(conn, acme, tenant.Event("NoteTaken", text)).state == "pending"
    with pytest.raises(InvalidPayload, match="has 262,145 bytes; at most 262,144"):
        WRITER.add(conn, acme, tenant.Event("NoteTaken", text + "x"))
    insert = """INSERT INTO redrive_tenant."OutboxMessages" ("TenantId", "EventType", "Payload") VALUES (%s, 'X', %s)"""
    with pytest.raises(psycopg.Error, match="payload"), conn.transaction():
        conn.execute(insert, [acme, json.dumps(text + "x")])
    conn.execute(insert, [acme, json.dumps(text)])


def test_a_connection_without_a_transaction_is_refused(outbox_database: str, acme: str) -> None:
    with psycopg.connect(outbox_database, autocommit=True) as conn, pytest.raises(NoOpenTransaction):
        WRITER.add(conn, acme, published())


@pytest.mark.req("T-04")
@pytest.mark.req("T-08")
def test_a_duplicate_is_logged_with_tenant_and_key(conn: Conn, acme: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="redrive.tenant")
    first = WRITER.add(conn, acme, published())
    assert caplog.records == []
    WRITER.add(conn, acme, published())
    (line,) = caplog.records
    assert (line.message, line.tenant, line.key) == ("OUTBOX_WORKER_DUPLICATE", acme, str(first.key))  # type: ignore[attr-defined]
