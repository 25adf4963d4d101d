"""A legacy `payment_outbox` for tests, and what became of its rows."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import psycopg

from tests.systems.payments.conftest import IBAN, rows

TABLE = """
    CREATE TABLE public.payment_outbox (
        outbox_id uuid PRIMARY KEY, instruction_id text NOT NULL, participant_id text NOT NULL,
        sequence_id bigint NOT NULL, idempotency_key text NOT NULL, rail_type text NOT NULL, payload jsonb NOT NULL,
        status text NOT NULL,
        attempt_count integer NOT NULL DEFAULT 0, rail_reference text, created_at timestamptz NOT NULL DEFAULT now())
"""
PAYLOAD = {"amount": 12.34, "currency": "EUR", "destination": {"iban": IBAN}}


def id_of(number: int) -> UUID:
    return UUID(int=0x0190_0000_0000_7000_8000_0000_0000_0000 + number)


def legacy(dsn: str, *statuses: str, participant: str = "acme", first: int = 1, **other: Any) -> None:
    """Rows of a participant, numbered from `first`."""
    with psycopg.connect(dsn) as conn:
        for number, status in enumerate(statuses, first):
            values = {
                "outbox_id": id_of(number),
                "instruction_id": f"{participant}/{number}",
                "participant_id": participant,
                "sequence_id": number,
                "idempotency_key": f"key-{number}",
                "rail_type": "sepa",
                "payload": json.dumps(PAYLOAD),
                "status": status,
                **other,
            }
            columns = ", ".join(values)
            conn.execute(
                f"INSERT INTO payment_outbox ({columns}) VALUES ({', '.join(['%s'] * len(values))})".encode(),
                list(values.values()),
            )


def states(dsn: str) -> list[tuple[Any, ...]]:
    return rows(
        dsn,
        "SELECT i.sequence_id, i.outbox_id, coalesce(k.reason, redrive.state_of(i.outbox_id)),"
        " coalesce(p.in_doubt_since, k.in_doubt_since) IS NOT NULL"
        " FROM redrive_payments.intent i LEFT JOIN redrive.parked k ON k.id = i.outbox_id"
        " LEFT JOIN redrive.pending p ON p.id = i.outbox_id ORDER BY i.sequence_id",
    )


def is_there(dsn: str) -> bool:
    return rows(dsn, "SELECT to_regclass('payment_outbox') IS NOT NULL") == [(True,)]
