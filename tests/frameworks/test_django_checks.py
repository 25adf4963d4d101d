"""What `manage.py check` says, and that it says nothing where nothing is wrong."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from django.core import checks
from django.core.management import call_command
from django.db import connections
from django.test import override_settings

from tests.support import django_project


def found(*, databases: list[str] | None = None) -> dict[str, checks.CheckMessage]:
    messages = checks.run_checks(databases=databases or ["default"])
    return {message.id: message for message in messages if message.id.startswith("redrive.")}


def test_a_project_that_is_set_up_gets_no_message(project: Any) -> None:
    assert found() == {}


@override_settings(REDRIVE_DATABASE="nowhere")
def test_a_database_that_does_not_exist_is_an_error(project: Any) -> None:
    assert "default" in found()["redrive.E001"].hint


def test_another_engine_is_an_error(monkeypatch: pytest.MonkeyPatch, project: Any) -> None:
    monkeypatch.setitem(connections.databases, "default", {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"})
    del connections["default"]
    assert "sqlite" in found()["redrive.E001"].msg


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("no.such.module:app", "no.such"),
        ("tests.support.django_project:nothing", "NoneType"),
        ("tests.frameworks.broken_app:app", "ZeroDivisionError"),
    ],
)
def test_an_app_that_is_not_there_is_an_error(project: Any, spec: str, said: str) -> None:
    with override_settings(REDRIVE_APP=spec):
        assert said in found()["redrive.E002"].msg


@override_settings(REDRIVE_APP=None)
def test_no_app_at_all_is_a_warning(project: Any) -> None:
    assert "REDRIVE_APP" in found()["redrive.W001"].hint


def test_no_autocommit_is_a_warning(project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections.databases["default"], "AUTOCOMMIT", False)
    assert "transaction.atomic" in found()["redrive.W002"].hint


def test_a_schema_that_is_gone_is_an_error_but_not_while_migrate_would_bring_it(
    new_project: Any, empty_database: str
) -> None:
    assert found() == {}
    call_command("migrate", "redrive", verbosity=0)
    with psycopg.connect(empty_database) as conn:
        conn.execute("DROP SCHEMA redrive, redrive_evidence, redrive_payments, redrive_reviews, redrive_tenant CASCADE")
    assert found()["redrive.E003"].hint == "manage.py redrive migrate"
    call_command("redrive", "migrate")
    assert found() == {}


def test_a_schema_of_a_changed_file_is_an_error(own_project: Any, database: str) -> None:
    call_command("migrate", "redrive", verbosity=0)
    with psycopg.connect(database) as conn:
        conn.execute("UPDATE redrive.schema_version SET checksum = 'another' WHERE number_or_file = '001'")
    assert "changed" in found()["redrive.E003"].msg


def test_a_database_that_does_not_answer_is_said_in_a_sentence_without_the_password(
    project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connections.databases["default"], "PASSWORD", "do-not-tell")
    monkeypatch.setitem(connections.databases["default"], "PORT", "1")
    monkeypatch.setitem(connections.databases["default"], "HOST", "127.0.0.1")
    del connections["default"]
    said = found()["redrive.E003"]
    assert "127.0.0.1:1" in said.msg
    assert "do-not-tell" not in said.msg


def test_without_a_named_database_no_connection_is_opened(project: Any) -> None:
    project.close()
    assert checks.run_checks(tags=["redrive", "database"]) == []
    assert project.connection is None
    assert django_project.app.destinations
