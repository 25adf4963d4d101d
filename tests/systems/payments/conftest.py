"""A database with the tables of payments, one for a module: each test has participants of its own in it."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from click.testing import CliRunner, Result

from redrive.answers import Delivered, Retryable, Terminal
from redrive.message import Attempt, ParkReason, WorkerId
from redrive.operate.cli import output
from redrive.operate.cli.main import cli
from redrive.operate.documents import titled
from redrive.policy import Settlement
from redrive.ports import ClaimRequest
from redrive.store.runtime.postgres import PostgresStore
from redrive.systems import payments
from redrive.systems.payments import Instruction
from tests.support import messages as m
from tests.support.databases import fresh_database
from tools import documents

IBAN = "DE75512108001245126199"
Run = Callable[..., Result]


@pytest.fixture(scope="module")
def paying(server_dsn: str, template: str) -> Iterator[str]:
    """The DSN of the module's database."""
    with fresh_database(server_dsn, template=template) as dsn:
        yield dsn


@pytest.fixture
def participant(paying: str) -> str:
    """One that is known, and new."""
    name = f"p-{secrets.token_hex(4)}"
    with psycopg.connect(paying) as conn:
        payments.add_participant(conn, name)
    return name


@pytest.fixture
def run(paying: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Run]:
    """The command line on the module's database; what it prints with `--json` is compared with its schema."""
    monkeypatch.chdir(tmp_path)
    printed = output.document

    def document(name: str, values: Any, **options: Any) -> None:
        documents.seen(name, titled(name, values))
        printed(name, values, **options)

    monkeypatch.setattr(output, "document", document)
    root = logging.getLogger()
    level = root.level
    yield lambda *arguments: CliRunner().invoke(cli, ["--dsn", paying, "payments", *arguments])
    root.setLevel(level)
    for handler in [one for one in root.handlers if one.get_name() == "redrive"]:
        root.removeHandler(handler)


def instruction(participant: str, number: object = 1, **other: Any) -> Instruction:
    """A right one, but for what is given."""
    values: dict[str, Any] = {
        "instruction_id": f"{participant}/{number}",
        "participant_id": participant,
        "rail_type": "sepa",
        "amount": "12.34",
        "currency": "EUR",
        "destination": {"iban": IBAN},
    }
    return Instruction(**{**values, **other})


def rows(dsn: str, query: str, *values: Any) -> list[tuple[Any, ...]]:
    """Of one query, in a transaction of its own."""
    with psycopg.connect(dsn) as conn:
        return conn.execute(query.encode(), values).fetchall()


def act(dsn: str, verb: str, id: UUID) -> str:
    """An operator's act on a message, and what it answered."""
    return str(rows(dsn, f"SELECT redrive.{verb}_1(%s, 'anna', 'a test')", id)[0][0])


SETTLEMENTS = {
    "delivered": m.close(Delivered("rail-1", {"rail_code": "ACCEPTED"})),
    "retryable": m.retry(Retryable("UNAVAILABLE"), error_class="UNAVAILABLE", delay_seconds=3600),
    "terminal": m.park(answer=Terminal("ACCOUNT_CLOSED"), error_class="ACCOUNT_CLOSED", halts=False),
    "exhausted": m.park(answer=Retryable("UNAVAILABLE"), error_class="UNAVAILABLE", exhausted=True),
    "held": m.park(ParkReason.HELD, error_class="TIMEOUT"),
    "dead in doubt": m.park(error_class="TIMEOUT", in_doubt=True),
    "dead with a late success": m.park(answer=Terminal("ACCOUNT_CLOSED"), error_class="ACCOUNT_CLOSED", halts=False),
}


def answered(dsn: str, id: UUID, how: str | None, *, rail: str = "sepa") -> None:
    """Claim a payment, and settle it as if its rail had said so; None leaves it in hand."""
    asyncio.run(_answered(dsn, id, how, f"payments.{rail}"))


async def _answered(dsn: str, id: UUID, how: str | None, destination: str) -> None:
    async with PostgresStore(dsn) as store:
        attempt = await claimed(store, id, destination)
        if how is None:
            return
        await _settle(store, attempt, SETTLEMENTS[how])
        if how == "dead with a late success":
            await _settle(store, attempt, SETTLEMENTS["delivered"])


async def claimed(
    store: PostgresStore, id: UUID, destination: str = "payments.sepa", *, worker: WorkerId = m.WORKER
) -> Attempt:
    """The claim of one payment; what else was due goes back."""
    claim_requests = [ClaimRequest(destination, level, 500) for level in (0, 1, 2)]
    taken = (await store.claim(worker, claim_requests, lease_seconds=m.LEASE_SECONDS)).attempts
    await store.hand_back(worker, [one.fence for one in taken if one.id != id])
    (found,) = [one for one in taken if one.id == id]
    return found


async def _settle(store: PostgresStore, attempt: Attempt, settlement: Settlement) -> None:
    await store.settle(m.WORKER, [m.outcome(attempt, settlement)])
