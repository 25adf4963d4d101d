"""A database with a message in every state, and the command line run on it as a script would."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import pytest
from click.testing import CliRunner, Result

from redrive.answers import Retryable, Terminal, Unknown
from redrive.message import MessageId, ParkReason
from redrive.operate import cursors
from redrive.operate.cli import output
from redrive.operate.cli.main import cli
from redrive.operate.documents import titled
from redrive.ports import RelayInfo
from redrive.store.runtime.postgres import PostgresStore
from tests.support import messages as m
from tests.support.databases import fresh_database
from tools import documents

NOWHERE = "postgresql://anna:geheim@127.0.0.1:1/shop"
NOBODY = "01890a5d-ac96-774b-bcce-000000000000"
SECRET = "4111-secret"
Answer = TypeVar("Answer")

_VARIABLES = ("DATABASE_URL", "PGHOST", "PGHOSTADDR", "PGSERVICE", "PGDATABASE", "PGUSER", "PGPORT", "COLUMNS")


@pytest.fixture(autouse=True)
def _nothing_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No settings of this machine, no settings file, and no log handler left behind."""
    for name in ("REDRIVE_DSN", "REDRIVE_CONFIG", "REDRIVE_LOG_FORMAT", "NO_COLOR", "FORCE_COLOR", *_VARIABLES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("REDRIVE_DATA_DIR", str(tmp_path / "no-server"))
    monkeypatch.chdir(tmp_path)
    root = logging.getLogger()
    level = root.level
    yield
    root.setLevel(level)
    for handler in [one for one in root.handlers if one.get_name() == "redrive"]:
        root.removeHandler(handler)


@pytest.fixture(autouse=True)
def _documents_fit_their_schemas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a test makes a command print with `--json` is compared with the schema that it names."""
    printed = output.document

    def document(name: str, values: Any, **options: Any) -> None:
        documents.seen(name, titled(name, values))
        printed(name, values, **options)

    monkeypatch.setattr(output, "document", document)


@pytest.fixture
def restricted(server_dsn: str) -> Iterator[str]:
    """The name of a new login that may nothing, and no other test uses."""
    name = f"redrive_test_{secrets.token_hex(6)}"
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        connection.execute(f'CREATE ROLE "{name}" LOGIN'.encode())
        yield name
        connection.execute(f'DROP ROLE IF EXISTS "{name}"'.encode())


@dataclass(frozen=True)
class Redrive:
    """The command line on one database."""

    dsn: str
    runner: CliRunner = field(default_factory=CliRunner)

    def __call__(self, *arguments: object, dsn: str | None = None) -> Result:
        return self.runner.invoke(cli, [*map(str, arguments), "--dsn", dsn or self.dsn])

    def json(self, *arguments: object, exit_code: int = 0) -> Any:
        """The document that the command printed."""
        result = self(*arguments, "--json")
        assert result.exit_code == exit_code, (result.stderr, result.exception)
        return json.loads(result.stdout)


@dataclass(frozen=True, kw_only=True)
class Shop:
    """One message in every state, by the name of the state."""

    dsn: str
    ids: dict[str, MessageId]
    now: datetime

    def __getitem__(self, state: str) -> MessageId:
        return self.ids[state]

    def call(self, verb: Callable[[PostgresStore], Awaitable[Answer]]) -> Answer:
        """Something of the store, from a test that is not async."""

        async def run() -> Answer:
            async with PostgresStore(self.dsn) as store:
                return await verb(store)

        return asyncio.run(run())

    def state(self, name: str) -> str:
        """Where the message is now."""
        return self.call(lambda store: m.state_of(store, self.ids[name]))


@pytest.fixture
def redrive(database: str) -> Redrive:
    """The command line on an empty, migrated database."""
    return Redrive(database)


@pytest.fixture
def shop(database: str) -> Shop:
    """Destinations `shop` (a live relay) and `sms` (nobody), a message in every state."""
    now = datetime.now(UTC)
    ids = asyncio.run(_stock(database, now))
    return Shop(dsn=database, ids=ids, now=now)


@pytest.fixture(scope="session")
def stock(server_dsn: str, template: str) -> Iterator[Shop]:
    """The same as `shop`, made once: for tests that only look."""
    with fresh_database(server_dsn, template=template) as dsn:
        now = datetime.now(UTC)
        yield Shop(dsn=dsn, ids=asyncio.run(_stock(dsn, now)), now=now)


@pytest.fixture
def look(stock: Shop) -> Redrive:
    """The command line on `stock`."""
    return Redrive(stock.dsn)


@pytest.fixture
def nowhere() -> Redrive:
    """The command line with a database that does not answer."""
    return Redrive(NOWHERE)


async def _stock(dsn: str, now: datetime) -> dict[str, MessageId]:
    async with PostgresStore(dsn) as store:
        await store.register(_relay("relay-1"), now=now)
        ids: dict[str, MessageId] = {}
        for state, settlement in {
            "dead": m.park(answer=Terminal("HTTP_409"), error_class="HTTP_409"),
            "held": m.park(ParkReason.HELD, answer=Unknown("TIMEOUT"), error_class="TIMEOUT"),
            "unrecorded": m.park(ParkReason.UNRECORDED, error_class="RECORD_FAILED"),
            "delivered": m.close(),
            "retrying": m.retry(Retryable("HTTP_503"), delay_seconds=600.0),
        }.items():
            ids[state] = await m.enqueue(store, now=now, key=f"order:{state}", body=_body(state), headers={"x-a": "b"})
            taken = await m.claim(store, now=now)
            await m.settle(
                store, taken, settlement, now=now, text=f"{state} happened", stack="ValueError\n  a.py:1 in b"
            )
        ids["leased"] = await m.enqueue(store, now=now, key="order:leased")
        await m.claim(store, now=now)
        ids["pending"] = await m.enqueue(store, now=now, key="order:pending", body=_body("pending"))
        ids["unhandled"] = await m.enqueue(store, now=now - timedelta(minutes=3), destination="sms", key="sms:1")
        return ids


def _relay(name: str) -> RelayInfo:
    return RelayInfo(worker=m.WORKER, name=name, host="app-1", pid=4711, version="1.0", destinations=[m.DESTINATION])


def _body(state: str) -> bytes:
    return json.dumps({"card": SECRET, "state": state}).encode()


def cursor(*parts: object) -> str:
    """A cursor of these parts, also such as no page ends with."""
    made = cursors.encode(parts)
    assert made is not None
    return made
