"""`OutboxMessage` of Django assigns its key, gets its id from the database, and adds a known key once (T-11)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.core.checks import run_checks
from django.db import DatabaseError, transaction

from redrive.errors import InvalidValue, NoOpenTransaction, UsageError
from tests.support import django_project
from tests.support.databases import fresh_database
from tests.systems.tenant.orm import TYPES, a_tenant, events_of, rows

from redrive.systems.tenant.models.django import AbstractOutboxMessage, OutboxMessage  # isort: skip - the project is set up above

pytestmark = pytest.mark.req("T-11")


class InvoiceEvent(AbstractOutboxMessage):
    event_types = TYPES

    class Meta(AbstractOutboxMessage.Meta):
        app_label = "invoices"


@pytest.fixture(scope="module")
def dsn(server_dsn: str, template: str) -> Iterator[str]:
    with fresh_database(server_dsn, template=template) as dsn:
        yield dsn


@pytest.fixture
def connection(dsn: str) -> Iterator[Any]:
    """As a producer, who may read nothing."""
    with django_project.on_database(dsn) as connection:
        be(connection, "redrive_producer")
        yield connection


@pytest.fixture
def tenant(connection: Any) -> str:
    return a_tenant()


def be(connection: Any, role: str, tenant: str = "*") -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SET redrive.tenant = '{tenant}'; SET ROLE {role}")


def viewed(tenant: str, **more: Any) -> OutboxMessage:
    return OutboxMessage(**{"tenant_id": tenant, "event_type": "InvoiceViewed", "payload": {"invoice": 7}, **more})


def issued(tenant: str, version: int = 1, **more: Any) -> InvoiceEvent:
    values = {"event_type": "InvoiceIssued", "parts": {"entity": "i-7", "version": version}, **more}
    return InvoiceEvent(tenant_id=tenant, payload={"version": version}, **values)


@pytest.mark.seed("003", "OutboxMessage_DefaultValues")
@pytest.mark.seed("003", "OutboxMessage_Defaults_Assigned_OnAdd")
def test_a_model_without_a_key_gets_one_when_it_is_saved_and_is_not_processed(dsn: str, tenant: str) -> None:
    with transaction.atomic():
        message = viewed(tenant)
        message.save()
    assert isinstance(message.idempotency_key, UUID)
    assert (message.processed_at, message.is_processed, message.retry_count) == (None, False, 0)
    assert (message.error, message.next_attempt_at, message.dead_letter) == (None, None, False)
    assert (message.state, message.outbox) == ("pending", "tenant.events")
    query = "SELECT id, key, created_at FROM redrive.message WHERE tenant = %s"
    ((id, key, created_at),) = rows(dsn, query, tenant)
    assert (message.pk, str(message.idempotency_key)) == (id, key)
    assert message.created_at is not None
    # Of the id, which is made after the row's time was taken, to the millisecond.
    assert message.created_at >= created_at.replace(microsecond=created_at.microsecond // 1000 * 1000)


@pytest.mark.seed("003", "OutboxMessage_Roundtrip_Persists_Values")
def test_what_a_model_was_given_is_read_back_by_the_role_of_a_reader(connection: Any, tenant: str) -> None:
    key, payload = uuid4(), {"invoice": 7, "paid": [1.5, None, "ü"]}
    with transaction.atomic():
        written = OutboxMessage.objects.create(
            tenant_id=tenant, event_type="InvoicePaid", payload=payload, idempotency_key=key, order_by="i-7"
        )
    be(connection, "redrive_approver", tenant)
    (read,) = OutboxMessage.objects.all()
    assert (read.pk, read.tenant_id, read.event_type, read.payload) == (written.pk, tenant, "InvoicePaid", payload)
    assert (read.idempotency_key, read.order_by, read.outbox, read.state) == (key, "i-7", "tenant.events", "pending")
    assert (read.processed_at, read.error, read.is_processed, read.retry_count) == (None, None, False, 0)
    assert OutboxMessage.objects.get(pk=written.pk) == read
    be(connection, "redrive_approver", "another")
    assert not OutboxMessage.objects.exists()


@pytest.mark.seed("003", "Insert_Duplicate_SameTenant_Idempotent")
def test_a_known_key_is_a_success_with_the_first_id_and_one_row(dsn: str, tenant: str) -> None:
    key, ids = uuid4(), []
    for payload in ("first", "second", "third"):
        with transaction.atomic():
            ids.append(viewed(tenant, payload=payload, idempotency_key=key))
            ids[-1].save()
    assert [one.pk for one in ids] == events_of(dsn, tenant) * 3
    assert rows(dsn, "SELECT payload FROM redrive_tenant.outbox_messages WHERE tenant_id = %s", tenant) == [("first",)]


@pytest.mark.seed("003", "Insert_SameKey_DifferentTenant")
@pytest.mark.seed("003", "Outbox_Insert_SameKey_DifferentTenant_ShouldSucceed")
def test_the_same_key_of_two_tenants_is_two_rows(connection: Any, dsn: str) -> None:
    key, tenants = uuid4(), [a_tenant(), a_tenant()]
    with transaction.atomic():
        messages = OutboxMessage.objects.bulk_create([viewed(tenant, idempotency_key=key) for tenant in tenants])
    assert [[message.pk] for message in messages] == [events_of(dsn, tenant) for tenant in tenants]


def test_a_model_that_knows_its_event_types_makes_the_key_by_the_recipe(dsn: str, tenant: str) -> None:
    with transaction.atomic():
        message = issued(tenant, 3)
        message.save()
    assert message.idempotency_key == TYPES.key(tenant, "InvoiceIssued", {"entity": "i-7", "version": 3})
    with transaction.atomic():
        issued(tenant, 3).save()  # a retry, in a new process
        issued(tenant, 4).save()
        for _ in range(2):
            InvoiceEvent.objects.create(tenant_id=tenant, event_type="InvoiceViewed", payload={})
    assert len(events_of(dsn, tenant)) == 4


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"event_type": "InvoiceIsued"}, "did you mean 'InvoiceIssued'"),
        ({"parts": {"entity": "i-7"}}, "version is missing"),
        ({"event_type": "InvoiceViewed"}, "not keyed"),
        ({"idempotency_key": "no uuid"}, "must be a UUID"),
    ],
)
def test_what_makes_no_key_is_refused_before_anything_is_written(
    dsn: str, tenant: str, values: dict[str, Any], said: str
) -> None:
    with transaction.atomic():
        with pytest.raises(InvalidValue, match=said), transaction.atomic():
            issued(tenant, **values).save()
        issued(tenant).save()
    assert len(events_of(dsn, tenant)) == 1


def test_parts_without_event_types_are_refused(tenant: str) -> None:
    with pytest.raises(InvalidValue, match="event_types"), transaction.atomic():
        viewed(tenant, parts={"entity": "i-7"}).save()


def test_several_in_one_statement_have_their_own_ids_and_duplicates_share_one(
    connection: Any, dsn: str, tenant: str
) -> None:
    counted: list[str] = []
    with transaction.atomic(), connection.execute_wrapper(Counted(counted)):
        messages = InvoiceEvent.objects.bulk_create([issued(tenant, number % 10) for number in range(20)])
    assert len([one for one in counted if one.startswith("INSERT")]) == 1
    assert [one.pk for one in messages[:10]] == [one.pk for one in messages[10:]]
    written = {one.pk: str(one.idempotency_key) for one in messages}
    assert dict(rows(dsn, "SELECT id, key FROM redrive.message WHERE tenant = %s", tenant)) == written
    assert len(written) == 10


class Counted:
    def __init__(self, statements: list[str]) -> None:
        self._statements = statements

    def __call__(self, execute: Any, statement: str, *rest: Any) -> Any:
        self._statements.append(statement)
        return execute(statement, *rest)


def test_a_rollback_takes_the_event_away(dsn: str, tenant: str) -> None:
    with transaction.atomic():
        issued(tenant).save()
        transaction.set_rollback(True)
    assert events_of(dsn, tenant) == []
    with transaction.atomic():  # the retry of the whole request
        issued(tenant).save()
    assert len(events_of(dsn, tenant)) == 1


def test_outside_of_a_transaction_an_event_is_refused(dsn: str, tenant: str) -> None:
    for add in (viewed(tenant).save, lambda: OutboxMessage.objects.bulk_create([viewed(tenant)])):
        with pytest.raises(NoOpenTransaction, match=r"transaction\.atomic"):
            add()
    assert events_of(dsn, tenant) == []


def test_a_changed_or_deleted_model_is_refused_and_the_transaction_goes_on(dsn: str, tenant: str) -> None:
    with transaction.atomic():
        message = viewed(tenant)
        message.save()
        events = OutboxMessage.objects
        changes: list[Callable[[], Any]] = [
            message.save,
            message.delete,
            events.all().delete,
            lambda: events.update(error="x"),
            lambda: events.bulk_update([message], ["error"]),
            lambda: events.bulk_create([message]),
        ]
        for change in changes:
            with pytest.raises(UsageError, match="not updated or deleted after it was added"):
                change()
        looks: list[Callable[[], Any]] = [
            lambda: events.get_or_create(tenant_id=tenant),
            lambda: events.update_or_create(tenant_id=tenant),
            lambda: events.bulk_create([viewed(tenant)], ignore_conflicts=True),
        ]
        for look_first in looks:
            with pytest.raises(UsageError, match="use `create`"):
                look_first()
    assert events_of(dsn, tenant) == [message.pk]


@pytest.mark.parametrize("name", ["id", "created_at"])
def test_what_the_database_gives_cannot_be_given(tenant: str, name: str) -> None:
    with pytest.raises(InvalidValue, match=f"`{name}` of an event comes from the database"), transaction.atomic():
        viewed(tenant, **{name: uuid4()}).save()


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"is_processed": True}, "inserted unprocessed"),
        ({"retry_count": 2}, "inserted unprocessed"),
        ({"error": "no"}, "inserted unprocessed"),
        ({"dead_letter": True}, "inserted unprocessed"),
        ({"tenant_id": None}, "needs tenant_id, event_type and payload"),
        ({"payload": None}, "needs tenant_id, event_type and payload"),
        ({"outbox": "mail"}, 'must begin with "tenant."'),
    ],
)
def test_what_is_no_new_event_is_refused_by_the_database(
    dsn: str, tenant: str, values: dict[str, Any], said: str
) -> None:
    with pytest.raises(DatabaseError, match=said), transaction.atomic():
        viewed(tenant, **values).save()
    assert events_of(dsn, tenant) == []


def test_the_model_is_of_no_app_and_passes_the_checks_of_a_project(connection: Any) -> None:
    assert not OutboxMessage._meta.managed
    assert not InvoiceEvent._meta.managed
    assert OutboxMessage not in OutboxMessage._meta.apps.get_models()
    assert [*OutboxMessage.check(databases=["default"]), *InvoiceEvent.check(databases=["default"])] == []
    assert [one for one in run_checks() if "outbox" in str(one.obj).lower()] == []
