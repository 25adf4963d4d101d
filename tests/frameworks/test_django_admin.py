"""The admin shows what is there, changes nothing, shows no payload, and costs the same however long the history is."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.core.management import call_command
from django.test import RequestFactory

import redrive
from redrive.django.admin import ROWS_MAX
from redrive.django.models import Destination, Message, Parked
from redrive.testing import drain
from tests.support import bulk
from tests.support.touched import touched

MODELS = (Message, Parked, Destination)
SECRET = "the-payload-of-it"


def page(model: Any, query: str = "") -> str:
    response = admin.site.get_model_admin(model).changelist_view(request(query))
    response.render()
    text: str = response.content.decode()
    return text


def request(query: str = "", *, method: str = "get") -> Any:
    made = getattr(RequestFactory(), method)(f"/admin/{query}")
    made.user = User(username="anna", is_active=True, is_staff=True, is_superuser=True)
    return made


@pytest.fixture(scope="module")
def messages(shared_database: str) -> dict[str, Any]:
    """One message that waits, one that died."""
    app = redrive.App()

    @app.destination("bank")
    def bank(_: redrive.Attempt) -> None:
        raise redrive.Terminal("ACCOUNT_LOCKED", text="locked")

    with psycopg.connect(shared_database) as conn:
        dead = redrive.enqueue(conn, "bank", {"secret": SECRET}, key="pay:1", headers={"secret": SECRET})
        drain(conn, app)
        waiting = redrive.enqueue(conn, "mail", {"secret": SECRET}, key="mail:1")
    return {"dead": dead.id, "waiting": waiting.id}


@pytest.fixture
def lived(project: Any, messages: dict[str, Any]) -> dict[str, Any]:
    return messages


def test_the_lists_show_what_is_there(lived: dict[str, Any]) -> None:
    messages = page(Message)
    assert str(lived["dead"]) in messages
    assert str(lived["waiting"]) in messages
    assert "pending" in messages
    parked = page(Parked)
    assert str(lived["dead"]) in parked
    assert "ACCOUNT_LOCKED" in parked
    assert str(lived["waiting"]) not in parked
    assert "bank" in page(Destination)


def test_a_message_is_found_by_its_id_or_its_key(lived: dict[str, Any]) -> None:
    for term in (str(lived["dead"]), "pay:1"):
        found = page(Message, f"?q={term}")
        assert str(lived["dead"]) in found
        assert str(lived["waiting"]) not in found
    assert str(lived["dead"]) not in page(Message, "?q=unknown")
    assert str(lived["dead"]) not in page(Parked, "?q=unknown")


def test_a_message_shows_its_history_and_never_its_payload_or_headers(lived: dict[str, Any]) -> None:
    call_command("migrate", "contenttypes", verbosity=0)
    response = admin.site.get_model_admin(Message).change_view(request(), str(lived["dead"]))
    response.render()
    shown = response.content.decode()
    assert "ACCOUNT_LOCKED" in shown
    assert SECRET not in shown
    assert not {"body", "headers", "context", "last_stack"} & {
        field.name for model in MODELS for field in model._meta.get_fields()
    }


@pytest.mark.parametrize("model", MODELS)
def test_nothing_is_added_changed_or_deleted(model: Any, lived: dict[str, Any]) -> None:
    own = admin.site.get_model_admin(model)
    assert own.get_model_perms(request()) == {"add": False, "change": False, "delete": False, "view": True}
    with pytest.raises(PermissionDenied):
        own.add_view(request())
    with pytest.raises(PermissionDenied):
        own.delete_view(request(), str(model.objects.first().pk))
    row = model.objects.first()
    for change in (row.save, row.delete, model.objects.all().delete, lambda: model.objects.update(tenant="other")):
        with pytest.raises(TypeError, match="not changed"):
            change()


@pytest.mark.req("G-05")
def test_a_page_costs_the_same_however_long_the_history(own_project: Any, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        bulk.closed(conn, 5 * ROWS_MAX)
        conn.execute("ANALYZE redrive.message")
    own_project.ensure_connection()
    with touched(own_project.connection) as seen:
        page(Message)
    assert seen.of("message", seen.scanned) <= ROWS_MAX  # counted, and no further
    assert seen.of("message", seen.entries) <= ROWS_MAX + 50
    assert seen.of("attempt", seen.scanned) == 0
    assert not seen.wrote
