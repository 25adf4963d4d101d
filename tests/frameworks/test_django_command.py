"""`manage.py redrive`: our command line on Django's database."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connections, transaction
from django.test import override_settings
from psycopg.conninfo import conninfo_to_dict

import redrive
from redrive.django import database as django_database
from redrive.relay.load_app import load_app
from tests.support import django_project
from tests.support.waiting import wait_until


def said(*words: str) -> str:
    out = io.StringIO()
    call_command("redrive", *words, stdout=out)
    return out.getvalue()


def test_status_is_that_of_djangos_database(project: Any) -> None:
    with transaction.atomic():
        redrive.enqueue(project, "nobody", 1)
    pending = {one["destination"]: one["pending"] for one in json.loads(said("status", "--json"))["backlog"]}
    assert pending["nobody"] == 1


def test_other_commands_are_passed_on(project: Any) -> None:
    assert json.loads(said("dead", "list", "--json"))["schema"] == "redrive.parked/v1"
    assert "MODULE:APP" in said("relay", "--help")
    assert "manage.py redrive" in said()


def test_an_exit_code_becomes_a_command_error(project: Any) -> None:
    with pytest.raises(CommandError) as failed:
        said("messages", "show", "0199b2c4-7d1e-7a30-9c57-3f0a1b2c3d4e")
    assert failed.value.returncode == 3


def test_logging_of_the_calling_program_stays_as_it_was(project: Any) -> None:
    root = logging.getLogger()
    before = (root.level, list(root.handlers))
    said("status")
    assert (root.level, list(root.handlers)) == before


@override_settings(REDRIVE_APP=None)
def test_a_relay_without_an_app_is_refused(project: Any) -> None:
    with pytest.raises(CommandError, match="REDRIVE_APP"):
        said("relay")


def test_the_dsn_has_what_postgresql_knows_and_nothing_else(project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"assume_role": "my role", "pool": False, "connect_timeout": 7, "options": "-c work_mem=1MB"}
    monkeypatch.setitem(connections.databases["default"], "OPTIONS", options)
    monkeypatch.setitem(connections.databases["default"], "PASSWORD", "se'cret \\")
    del connections["default"]
    parts = conninfo_to_dict(django_database.dsn())
    assert parts["password"] == "se'cret \\"
    assert parts["connect_timeout"] == "7"
    assert parts["options"] == "-c work_mem=1MB -c role=my\\ role"
    assert "cursor_factory" not in parts


def test_the_app_of_the_project_is_relayed(project: Any) -> None:
    app = load_app("redrive.django.app:app")
    assert app is django_project.app
    with transaction.atomic():
        redrive.enqueue(project, "mail", {"order": "relayed"})
    asyncio.run(relayed(app, {"order": "relayed"}))


async def relayed(app: redrive.App, payload: Any) -> None:
    async with app.running(django_database.dsn()):
        await asyncio.to_thread(wait_until, lambda: payload in django_project.delivered, seconds=20, what="delivery")


@pytest.mark.req("G-10")
def test_a_handlers_connection_that_broke_is_not_used_again(
    project: Any, shared_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As between two requests; else one restart of the server would break every thread of a relay for good."""
    from redrive.django.app import fresh_connections

    monkeypatch.setitem(project.settings_dict, "CONN_MAX_AGE", None)
    with fresh_connections(), project.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        ((pid,),) = cursor.fetchall()
    with psycopg.connect(shared_database) as conn:
        conn.execute("SELECT pg_terminate_backend(%s)", [pid])
    with pytest.raises(Exception, match=r"terminat|closed"), fresh_connections(), project.cursor() as cursor:
        cursor.execute("SELECT 1")
    with fresh_connections(), project.cursor() as cursor:
        cursor.execute("SELECT 1")
        assert cursor.fetchall() == [(1,)]
