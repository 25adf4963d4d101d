"""A database with the tables of payments, one for a module: each test has participants of its own in it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from redrive.systems import payments
from redrive.systems.payments import Instruction
from tests.support.databases import fresh_database

IBAN = "DE75512108001245126199"


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
