"""`submit`: business row, number and message commit together; the same again changes nothing (P-01)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import psycopg
import pytest

from redrive.systems import payments
from tests.systems.payments.conftest import instruction

pytestmark = pytest.mark.req("P-01")


def _rows(dsn: str, query: str, *values: Any) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as conn:
        return conn.execute(query, values).fetchall()


def test_a_payment_is_a_business_row_a_number_and_a_message_of_one_commit(paying: str, participant: str) -> None:
    with psycopg.connect(paying) as conn:
        first = payments.submit(conn, instruction(participant, 1))
        second = payments.submit(conn, instruction(participant, 2, amount=7, currency="JPY"))
    assert (first.sequence_id, second.sequence_id) == (1, 2)
    assert not first.already_existed
    assert _rows(
        paying,
        "SELECT m.id, m.destination, m.sequence, m.order_by, n.amount, n.currency FROM redrive.message m"
        " JOIN redrive_payments.intent i ON i.outbox_id = m.id"
        " JOIN redrive_payments.instruction n USING (instruction_id)"
        " WHERE i.participant_id = %s ORDER BY m.sequence",
        participant,
    ) == [
        (first.outbox_id, "payments.sepa", 1, f"payments/{participant}", Decimal("12.34"), "EUR"),
        (second.outbox_id, "payments.sepa", 2, f"payments/{participant}", 7, "JPY"),
    ]
