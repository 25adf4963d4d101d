"""The document's names for an auditor: its columns, who may read and insert, what its indexes became (T-08, T-09)."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import psycopg
import pytest

import redrive
from redrive.systems import tenant
from tests.support.touched import touched
from tests.systems.tenant.conftest import TYPES, Conn, delivered_by, outbox, published, row

pytestmark = pytest.mark.req("T-09")

COLUMNS = [
    "Id", "TenantId", "EventType", "Payload", "IdempotencyKey", "CreatedAt", "ProcessedAt", "IsProcessed", "RetryCount",
    "Error", "NextAttemptAt", "DeadLetter",
]  # fmt: skip
WRITER = tenant.OutboxWriter(event_types=TYPES)
INSERT = 'INSERT INTO redrive_tenant."OutboxMessages" ("TenantId", "EventType", "Payload", "IdempotencyKey")'
VALUES = 'VALUES (%s, %s, %s, %s) RETURNING "Id", "IdempotencyKey", "ProcessedAt", "RetryCount", "IsProcessed"'


def test_the_view_has_the_columns_of_the_document_in_both_spellings(conn: Conn) -> None:
    query = (
        "SELECT column_name FROM information_schema.columns WHERE table_schema = 'redrive_tenant' AND table_name = %s"
    )
    pascal = [name for (name,) in conn.execute(query, ["OutboxMessages"])]
    snake = [name for (name,) in conn.execute(query, ["outbox_messages"])]
    assert sorted(pascal) == sorted(COLUMNS)
    assert {name.replace("_", "") for name in snake} >= {name.lower() for name in COLUMNS}


def test_an_insert_into_the_view_is_an_event_and_a_known_key_gives_the_first_one(conn: Conn, acme: str) -> None:
    values: list[Any] = [acme, "DefinitionPublished", json.dumps({"a": 1}), uuid4()]
    first = conn.execute(f"{INSERT} {VALUES}", values).fetchone()
    again = conn.execute(f"{INSERT} {VALUES}", values).fetchone()
    assert first is not None
    assert first == again
    assert first[1:] == (values[3], None, 0, False)
    assert row(conn, first[0])["Payload"] == {"a": 1}
    assert WRITER.add(conn, acme, published(), key=values[3]).id == first[0]
    assert conn.execute("SELECT count(*) FROM redrive.message WHERE tenant = %s", [acme]).fetchone() == (1,)


def test_an_insert_without_a_key_gets_a_new_one_each_time(conn: Conn, acme: str) -> None:
    found = [conn.execute(f"{INSERT} {VALUES}", [acme, "X", "{}", None]).fetchone() for _ in range(2)]
    assert len({one[1] for one in found if one}) == 2


@pytest.mark.req("G-19")
@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("TenantId", None, "needs tenant_id, event_type and payload"),
        ("EventType", "", "needs tenant_id, event_type and payload"),
        ("Payload", None, "needs tenant_id, event_type and payload"),
        ("ProcessedAt", "2026-01-01", "is inserted unprocessed"),
        ("IsProcessed", True, "is inserted unprocessed"),
        ("RetryCount", 1, "is inserted unprocessed"),
        ("Error", "x", "is inserted unprocessed"),
        ("DeadLetter", True, "is inserted unprocessed"),
        ("NextAttemptAt", "2026-01-01", "is inserted unprocessed"),
        ("TenantId", "", "tenant"),
        ("EventType", "x" * 101, "kind"),
    ],
)
def test_an_insert_that_cannot_be_an_event_is_refused(
    conn: Conn, acme: str, column: str, value: object, said: str
) -> None:
    values = {"TenantId": acme, "EventType": "X", "Payload": "{}", column: value}
    names = ", ".join(f'"{name}"' for name in values)
    with pytest.raises(psycopg.Error, match=said), conn.transaction():
        conn.execute(
            f'INSERT INTO redrive_tenant."OutboxMessages" ({names}) VALUES ({", ".join(["%s"] * len(values))})',
            [*values.values()],
        )


@pytest.mark.req("G-19")
@pytest.mark.parametrize("destination", ["mail", "tenan", "Tenant.events"])
def test_an_insert_goes_to_an_outbox_and_to_no_other_destination(conn: Conn, acme: str, destination: str) -> None:
    columns = "tenant_id, event_type, payload, outbox"
    insert = f"INSERT INTO redrive_tenant.outbox_messages ({columns}) VALUES (%s, 'X', '{{}}', %s)"
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=f"outbox {destination} is none"), conn.transaction():
        conn.execute(insert, [acme, destination])
    conn.execute(insert, [acme, "tenant.other"])
    found = conn.execute("SELECT destination FROM redrive.message WHERE tenant = %s", [acme]).fetchall()
    assert found == [("tenant.other",)]


@pytest.mark.parametrize("statement", ["UPDATE redrive_tenant.{} SET {} = 'x'", "DELETE FROM redrive_tenant.{}"])
@pytest.mark.parametrize(("view", "column"), [("outbox_messages", "error"), ('"OutboxMessages"', '"Error"')])
def test_an_event_is_neither_changed_nor_removed_through_the_views(
    conn: Conn, statement: str, view: str, column: str
) -> None:
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
        conn.execute(statement.format(view, column))


def test_a_producer_inserts_and_reads_nothing_and_readers_see_their_tenant(conn: Conn, acme: str) -> None:
    conn.execute("SET LOCAL ROLE redrive_producer")
    conn.execute(f"{INSERT} {VALUES}", [acme, "X", "{}", None])
    with pytest.raises(psycopg.errors.InsufficientPrivilege), conn.transaction():
        conn.execute('SELECT * FROM redrive_tenant."OutboxMessages"')
    for role, whose, seen in (("viewer", acme, 1), ("auditor", acme, 1), ("operator", "other", 0)):
        conn.execute(f"RESET ROLE; SET LOCAL ROLE redrive_{role}; SET LOCAL redrive.tenant = '{whose}'")
        query = 'SELECT count(*) FROM redrive_tenant."OutboxMessages" WHERE "TenantId" = %s'
        assert conn.execute(query, [acme]).fetchone() == (seen,)
        payloads = 'SELECT count("Payload") FROM redrive_tenant."OutboxMessages"'
        assert conn.execute(payloads).fetchone() == (0,)
        with pytest.raises(psycopg.errors.InsufficientPrivilege), conn.transaction():
            conn.execute(f"{INSERT} {VALUES}", [acme, "X", "{}", None])


def test_a_body_or_a_key_that_is_none_of_the_documents_fails_no_list(conn: Conn, acme: str) -> None:
    bodies = [b"\xff\x00", b"{}", b"[" * 60 + b"]" * 60]
    ids = [
        redrive.enqueue(conn, "tenant.events", body, tenant=acme, kind="X", key=f"k{i}").id
        for i, body in enumerate(bodies)
    ]
    found = [row(conn, id) for id in ids]
    assert [one["Payload"] is None for one in found] == [True, False, False]
    assert {one["IdempotencyKey"] for one in found} == {None}


@pytest.mark.req("T-08")
def test_ux_outbox_tenant_idempotency_key_is_the_engines_primary_key_of_keys(conn: Conn, acme: str) -> None:
    """UX_Outbox_Tenant_IdempotencyKey: one row for a tenant and a key, by the database."""
    WRITER.add(conn, acme, published())
    with touched(conn) as seen:
        WRITER.add(conn, acme, published())
    assert seen.scans.get("idempotency_pkey")
    assert seen.of("idempotency", seen.scanned) == 0
    conn.execute("SET LOCAL enable_seqscan = off")
    plan = conn.execute(
        "EXPLAIN (COSTS OFF) SELECT i.message_id FROM redrive.idempotency i WHERE i.tenant = %s AND i.key_hash = %s",
        [acme, b"k"],
    ).fetchall()
    assert "Index Scan using idempotency_pkey" in "\n".join(line for (line,) in plan)
    with pytest.raises(psycopg.errors.UniqueViolation), conn.transaction():
        conn.execute("INSERT INTO redrive.idempotency SELECT * FROM redrive.idempotency WHERE tenant = %s", [acme])


@pytest.mark.req("T-08")
def test_idx_outbox_unprocessed_is_that_open_work_has_tables_of_its_own(conn: Conn, acme: str) -> None:
    """IDX_Outbox_Unprocessed: looking for unprocessed events reads none of those that were processed."""
    box, _ = outbox(*[None] * 30)
    for number in range(30):
        box.writer.add(conn, acme, published(version=number))
    delivered_by(conn, box)
    box.writer.add(conn, acme, published(version=99))
    conn.execute("SET LOCAL enable_seqscan = off")
    query = "SELECT count(*) FROM redrive_tenant.outbox_messages WHERE NOT is_processed AND tenant_id = %s"
    with touched(conn) as seen:
        assert conn.execute(query, [acme]).fetchone() == (1,)
    assert seen.of("attempt", seen.scanned) == seen.of("attempt", seen.entries) == 0
    plan = conn.execute(
        "EXPLAIN (COSTS OFF) SELECT id FROM redrive.pending WHERE destination = 'tenant.events' AND level = 1"
        " AND lane IS NULL AND NOT suspect AND due_at <= now() ORDER BY due_at, id LIMIT 100"
    ).fetchall()
    assert "pending_due" in "\n".join(line for (line,) in plan)
