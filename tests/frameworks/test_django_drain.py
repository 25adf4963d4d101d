"""A drain inside Django's uncommitted transaction: handlers use the ORM, in a thread, on the test's own connection."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from django.contrib.contenttypes.models import ContentType
from django.db import DatabaseError, connection, transaction

import redrive
from redrive.testing import assert_enqueued, assert_parked, drain
from redrive.transports.functions import FunctionTransport


@pytest.fixture
def rolled_back(project: Any) -> Any:
    """As in a TestCase: everything happens inside one transaction, which is never committed."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE IF NOT EXISTS django_content_type (id bigserial, app_label text, model text)")
    with transaction.atomic():
        yield project
        transaction.set_rollback(True)


def names() -> list[str]:
    return sorted(ContentType.objects.values_list("model", flat=True))


def test_a_handler_sees_what_the_test_has_not_committed_and_its_writes_are_gone_with_it(rolled_back: Any) -> None:
    app = redrive.App()

    @app.destination("rename")
    def rename(message: redrive.Attempt) -> None:
        with transaction.atomic():
            ContentType.objects.filter(model=message.payload).update(model=f"{message.payload} renamed")
            redrive.enqueue(connection, "renamed", message.payload)

    for name in "abcdef":
        ContentType.objects.create(app_label="x", model=name)
        redrive.enqueue(connection, "rename", name)
    assert len(drain(connection, app).delivered) == 6
    assert names() == [f"{name} renamed" for name in "abcdef"]
    assert_enqueued(connection, "renamed", "a")


def test_what_another_test_wrote_is_not_there(rolled_back: Any) -> None:
    assert names() == []


def test_a_statement_that_is_refused_costs_the_test_nothing(rolled_back: Any) -> None:
    app = redrive.App()

    @app.destination("breaks", classify={DatabaseError: redrive.Terminal("REFUSED")})
    def breaks(_: redrive.Attempt) -> None:
        ContentType.objects.create(app_label="x", model="gone")
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1/0")

    @app.destination("says-no")
    def says_no(_: redrive.Attempt) -> None:
        ContentType.objects.create(app_label="x", model="kept")
        raise redrive.Terminal("NO")

    redrive.enqueue(connection, "breaks", 1)
    redrive.enqueue(connection, "says-no", 1)
    drain(connection, app)
    assert_parked(connection, "breaks", "REFUSED")
    assert_parked(connection, "says-no", "NO")
    assert names() == ["kept"]


def test_a_thread_gets_its_own_connections_back(rolled_back: Any) -> None:
    app = redrive.App()
    seen: list[Any] = []

    @app.destination("look")
    def look(_: redrive.Attempt) -> None:
        seen.append(connection.connection)

    redrive.enqueue(connection, "look", 1)
    drain(connection, app)
    assert seen == [connection.connection]
    transport = app.destinations["look"].transport
    assert isinstance(transport, FunctionTransport)
    assert transport.around is nullcontext
    assert transport._threads.submit(lambda: connection.connection).result() is None
