"""Inserts in plain SQL, as from another language: a tenant's key is one row, and the database refuses a second one.

The document expects a database error for a duplicate; here an insert through the view is a success, and below it the
primary key of `redrive.idempotency` (tenant, hash of the key) is the document's UX_Outbox_Tenant_IdempotencyKey.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from tests.support.databases import fresh_database
from tests.systems.tenant.orm import a_tenant, events_of

pytestmark = [pytest.mark.req("T-01"), pytest.mark.req("T-08")]

SNAKE = """INSERT INTO redrive_tenant.outbox_messages (tenant_id, event_type, payload, idempotency_key)
           VALUES (%s, 'InvoicePaid', %s, %s) RETURNING id, idempotency_key, processed_at"""
PASCAL = """INSERT INTO redrive_tenant."OutboxMessages" ("TenantId", "EventType", "Payload", "IdempotencyKey")
            VALUES (%s, 'InvoicePaid', %s, %s) RETURNING "Id", "IdempotencyKey", "ProcessedAt" """
BOTH = pytest.mark.parametrize("statement", [SNAKE, PASCAL], ids=["outbox_messages", "OutboxMessages"])


@pytest.fixture(scope="module")
def dsn(server_dsn: str, template: str) -> Iterator[str]:
    with fresh_database(server_dsn, template=template) as dsn:
        yield dsn


def insert(dsn: str, statement: str, tenant: str, payload: str, key: UUID | None) -> tuple[Any, ...]:
    with psycopg.connect(dsn, options="-c role=redrive_producer") as conn:
        row = conn.execute(statement.encode(), [tenant, payload, key]).fetchone()
    assert row is not None
    return row


@BOTH
@pytest.mark.seed("003", "OutboxMessage_DefaultValues")
def test_an_insert_without_a_key_gets_one(dsn: str, statement: str) -> None:
    tenant = a_tenant()
    id, key, processed_at = insert(dsn, statement, tenant, "{}", None)
    assert ([id], processed_at) == (events_of(dsn, tenant), None)
    assert isinstance(key, UUID)


@BOTH
@pytest.mark.seed("003", "Insert_Duplicate_SameTenant_Idempotent")
@pytest.mark.seed("003", "Outbox_Insert_DuplicateIdempotencyKey_SameTenant_ShouldFailDB")
def test_a_second_insert_of_a_tenants_key_succeeds_and_leaves_one_row(dsn: str, statement: str) -> None:
    tenant, key = a_tenant(), uuid4()
    first = insert(dsn, statement, tenant, '{"n": 1}', key)
    assert insert(dsn, statement, tenant, '{"n": 2}', key) == first
    assert events_of(dsn, tenant) == [first[0]]


@pytest.mark.seed("003", "Outbox_Insert_DuplicateIdempotencyKey_SameTenant_ShouldFailDB")
def test_a_second_row_of_a_tenants_key_is_refused_by_the_unique_key_of_the_engine(dsn: str) -> None:
    tenant, key = a_tenant(), uuid4()
    insert(dsn, SNAKE, tenant, "{}", key)
    again = """INSERT INTO redrive.idempotency (tenant, key_hash, message_id, fingerprint, created_at)
               SELECT tenant, key_hash, gen_random_uuid(), fingerprint, created_at FROM redrive.idempotency
                WHERE tenant = %s"""
    with psycopg.connect(dsn) as conn, pytest.raises(psycopg.errors.UniqueViolation, match="idempotency_pkey"):
        conn.execute(again, [tenant])
    assert len(events_of(dsn, tenant)) == 1


@BOTH
@pytest.mark.seed("003", "Insert_SameKey_DifferentTenant")
@pytest.mark.seed("003", "Outbox_Insert_SameKey_DifferentTenant_ShouldSucceed")
def test_the_same_key_of_two_tenants_is_two_rows(dsn: str, statement: str) -> None:
    key, tenants = uuid4(), [a_tenant(), a_tenant()]
    ids = [insert(dsn, statement, tenant, "{}", key)[0] for tenant in tenants]
    assert [events_of(dsn, tenant) for tenant in tenants] == [[id] for id in ids]
