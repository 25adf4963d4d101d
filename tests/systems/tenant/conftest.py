"""A database with the tenant outbox, one for a module: each test has tenants of its own in it."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result
from psycopg.rows import dict_row

import redrive
from redrive.operate.cli import output
from redrive.operate.cli.main import cli
from redrive.operate.documents import titled
from redrive.systems import tenant
from redrive.testing import Drained, ManualClock, ScriptedTransport, drain
from tests.support.databases import fresh_database
from tools import documents

Run = Callable[..., Result]
Conn = psycopg.Connection[Any]

TYPES = tenant.EventTypes()
PUBLISHED = TYPES.declare("DefinitionPublished", category="definition", by=tenant.Version())
TICKED = TYPES.declare("InstanceTicked", category="instance", by=tenant.TimestampBucket(60))
CLAIMED = TYPES.declare("TaskClaimed", category="task", by=tenant.Correlation())
CREATED = TYPES.declare("InstanceCreated", category="instance")
NOTED = TYPES.declare("NoteTaken", category="note", keyed=False)


@pytest.fixture(scope="module")
def outbox_database(server_dsn: str, template: str) -> Iterator[str]:
    """The DSN of the module's database."""
    with fresh_database(server_dsn, template=template) as dsn:
        yield dsn


@pytest.fixture
def conn(outbox_database: str) -> Iterator[Conn]:
    """A connection whose transaction is never committed."""
    with psycopg.connect(outbox_database) as conn:
        yield conn
        conn.rollback()


@pytest.fixture
def acme() -> str:
    """A tenant of the test's own."""
    return f"acme-{secrets.token_hex(4)}"


@pytest.fixture
def run(outbox_database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Run]:
    """The command line on the module's database; what it prints with `--json` is compared with its schema."""
    monkeypatch.chdir(tmp_path)
    printed = output.document

    def document(name: str, values: Any, **options: Any) -> None:
        documents.seen(name, titled(name, values))
        printed(name, values, **options)

    monkeypatch.setattr(output, "document", document)
    root = logging.getLogger()
    level = root.level
    yield lambda *arguments: CliRunner().invoke(cli, ["--dsn", outbox_database, "tenant", *arguments])
    root.setLevel(level)
    for handler in [one for one in root.handlers if one.get_name() == "redrive"]:
        root.removeHandler(handler)


def published(entity: object = "d-1", version: object = 1, **payload: Any) -> tenant.Event:
    return tenant.Event("DefinitionPublished", payload or {"definition": entity}, parts=_parts(entity, version))


def _parts(entity: object, version: object) -> dict[str, Any]:
    return {"entity": entity, "version": version}


def outbox(*steps: Any, **options: Any) -> tuple[tenant.Outbox, ScriptedTransport]:
    """An outbox whose subscriber answers by a script, and the subscriber."""
    subscriber = ScriptedTransport(*steps)
    return tenant.Outbox(TYPES, options=tenant.OutboxOptions(**options), transport=subscriber), subscriber


def delivered_by(conn: Conn, box: tenant.Outbox, clock: ManualClock | None = None, **options: Any) -> Drained:
    """What a relay does, inside the transaction of the test."""
    app = redrive.App()
    app.include(box.system())
    return drain(conn, app, clock=clock, **options)


def row(conn: Conn, id: redrive.MessageId) -> dict[str, Any]:
    """The event as the view of the document shows it."""
    with conn.cursor(row_factory=dict_row) as cursor:
        cursor.execute('SELECT * FROM redrive_tenant."OutboxMessages" WHERE "Id" = %s', [id])
        (found,) = cursor.fetchall()
        return found
