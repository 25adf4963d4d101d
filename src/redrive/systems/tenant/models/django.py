"""`OutboxMessage` for Django: saving one is an enqueue in the transaction of the connection.

    OutboxMessage.objects.create(tenant_id="acme", event_type="InvoicePaid", payload={"invoice": 7})

    class WorkflowEvent(AbstractOutboxMessage):           # knows its event types, and makes keys by their recipes
        event_types = TYPES
        class Meta(AbstractOutboxMessage.Meta):
            app_label = "workflow"

Import it from a module of models of yours; no app is to be installed. The key is assigned when the row is written, so
`save`, `create` and `bulk_create` all have it. A second event of a tenant's key is a success, with the id of the first.
`REDRIVE_DATABASE` names the alias, as for `redrive.django`; it must be the one that your rows are written to.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, NoReturn

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections, models

from redrive.errors import UsageError
from redrive.systems.tenant.event_types import EventTypes
from redrive.systems.tenant.models import shared


class _Returned:
    """The database gives its value by RETURNING."""

    db_returning = True


class ReturnedUUIDField(_Returned, models.UUIDField):
    pass


class ReturnedTextField(_Returned, models.TextField):
    pass


class ReturnedDateTimeField(_Returned, models.DateTimeField):
    pass


class ReturnedBooleanField(_Returned, models.BooleanField):
    pass


class ReturnedIntegerField(_Returned, models.IntegerField):
    pass


class KeyField(models.UUIDField):
    """Assigned when its row is written: also in bulk, where Django sends no signal."""

    def pre_save(self, model_instance: Any, add: bool) -> Any:  # noqa: ARG002 - Django's signature
        one = model_instance
        key = shared.key_of_model(one.event_types, one.tenant_id, one.event_type, one.parts, one.idempotency_key)
        setattr(one, self.attname, key)
        return key


def _refuse_change(*_: Any, **__: Any) -> NoReturn:
    shared.refuse_change()


def _refuse_lookup(*_: Any, **__: Any) -> NoReturn:
    raise UsageError("Adding an event whose key is known is a success and changes nothing: use `create`.")


class OutboxQuerySet(models.QuerySet):
    update = bulk_update = delete = _refuse_change
    get_or_create = update_or_create = _refuse_lookup

    def bulk_create(self, objs: Iterable[Any], batch_size: int | None = None, **conflicts: Any) -> Any:
        if any(conflicts.values()):
            _refuse_lookup()
        events = list(objs)
        for one in events:
            one.check_new(self.db)
        return super().bulk_create(events, batch_size)


_Manager: Any = models.Manager.from_queryset(OutboxQuerySet)


class OutboxManager(_Manager):
    def get_queryset(self) -> Any:
        return OutboxQuerySet(self.model, using=self._db or _alias())


class AbstractOutboxMessage(shared.KeyParts, models.Model):
    """Columns and behaviour, for a model of your own app.

    event_types: of this model's events; None = any, and keys are made anew unless they are given. parts: what the key
    of one event is made of (`EventTypes.key`).
    """

    event_types: ClassVar[EventTypes | None] = None

    id = ReturnedUUIDField(primary_key=True, editable=False)
    tenant_id = models.TextField()
    event_type = models.TextField()
    payload = models.JSONField()
    idempotency_key = KeyField(blank=True, null=True)
    created_at = ReturnedDateTimeField(null=True, editable=False)
    processed_at = models.DateTimeField(null=True, editable=False)
    is_processed = ReturnedBooleanField(null=True, editable=False)
    retry_count = ReturnedIntegerField(null=True, editable=False)
    error = models.TextField(null=True, editable=False)
    next_attempt_at = models.DateTimeField(null=True, editable=False)
    dead_letter = ReturnedBooleanField(null=True, editable=False)
    state = ReturnedTextField(null=True, editable=False)
    outbox = ReturnedTextField(null=True, blank=True)
    order_by = models.TextField(null=True, blank=True)

    objects = OutboxManager()

    class Meta:
        abstract = True
        managed = False
        db_table = f'"{shared.SCHEMA}"."{shared.VIEW}"'
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"{self.event_type} of {self.tenant_id}"

    def save(self, *_: Any, using: str | None = None, **__: Any) -> None:
        alias = using or _alias()
        self.check_new(alias)
        super().save(force_insert=True, using=alias)

    def delete(self, *_: Any, **__: Any) -> NoReturn:
        shared.refuse_change()

    def check_new(self, alias: str) -> None:
        if not self._state.adding:
            shared.refuse_change()
        for name in shared.NEVER_GIVEN:
            if getattr(self, name) is not None:
                shared.refuse_given(name)
        connection = connections[alias]
        if not connection.in_atomic_block and connection.get_autocommit():
            shared.refuse_autocommit("`with transaction.atomic():`")


class OutboxMessage(AbstractOutboxMessage):
    """An event of any type."""

    class Meta(AbstractOutboxMessage.Meta):
        app_label = "redrive_tenant"
        verbose_name = "outbox message"


def _alias() -> str:
    alias: str = getattr(settings, "REDRIVE_DATABASE", DEFAULT_DB_ALIAS)
    return alias
