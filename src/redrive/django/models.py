"""Read-only models of messages, parked messages and destinations. None has a payload or headers: reading those is a
permission of its own.
"""

from typing import Any, NoReturn

from django.db import models

from redrive.django import database

READ_ONLY = "It is read through this model, not changed: use redrive.enqueue, redrive.cancel or `manage.py redrive`."


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise TypeError(READ_ONLY)


class ReadOnly(models.QuerySet):
    create = bulk_create = get_or_create = update_or_create = update = bulk_update = delete = _refuse


class Rows(models.Manager):
    def get_queryset(self) -> Any:
        return ReadOnly(self.model, using=database.alias())


class ReadOnlyModel(models.Model):
    objects = Rows()
    save = delete = _refuse

    class Meta:
        abstract = True
        managed = False
        default_permissions = ("view",)

    def __str__(self) -> str:
        return str(self.pk)


class Message(ReadOnlyModel):
    """A message and where it is now."""

    id = models.UUIDField(primary_key=True)
    destination = models.TextField()
    kind = models.TextField()
    key = models.TextField(null=True)
    tenant = models.TextField()
    state = models.TextField()
    order_by = models.TextField(null=True)
    sequence = models.BigIntegerField(null=True)
    level = models.SmallIntegerField()
    content_type = models.TextField()
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True)

    class Meta(ReadOnlyModel.Meta):
        db_table = '"redrive"."messages"'


class Parked(ReadOnlyModel):
    """A message that waits for a person, and why."""

    id = models.UUIDField(primary_key=True)
    reason = models.TextField()
    destination = models.TextField()
    tenant = models.TextField()
    error_class = models.TextField()
    last_text = models.TextField(null=True)
    stage = models.TextField()
    attempt = models.IntegerField()
    spent = models.IntegerField()
    crashes = models.IntegerField()
    exhausted = models.BooleanField()
    halts = models.BooleanField()
    first_failed_at = models.DateTimeField()
    last_failed_at = models.DateTimeField()
    parked_at = models.DateTimeField()
    in_doubt_since = models.DateTimeField(null=True)

    class Meta(ReadOnlyModel.Meta):
        db_table = '"redrive"."parked"'
        verbose_name = "parked message"


class Destination(ReadOnlyModel):
    """A destination, whether it is paused or taken to be down, and its limits over all relays."""

    name = models.TextField(primary_key=True)
    paused_at = models.DateTimeField(null=True)
    paused_until = models.DateTimeField(null=True)
    paused_by = models.TextField(null=True)
    pause_reason = models.TextField(null=True)
    breaker = models.TextField()
    breaker_changed_at = models.DateTimeField(null=True)
    breaker_until = models.DateTimeField(null=True)
    breaker_code = models.TextField(null=True)
    concurrency_limit = models.IntegerField(null=True)
    rate_per_second = models.FloatField(null=True)

    class Meta(ReadOnlyModel.Meta):
        db_table = '"redrive"."destination"'
