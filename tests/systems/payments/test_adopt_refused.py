"""A legacy `payment_outbox` is not touched by a dry run, nor while one of its rows is unexplained (P-09)."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

from tests.systems.payments.conftest import Run, rows
from tests.systems.payments.legacy import PAYLOAD, TABLE, id_of, is_there, legacy, states

pytestmark = pytest.mark.req("P-09")


@pytest.fixture(autouse=True)
def _outbox(paying: str) -> None:
    """A new one for each test; nothing else of the database changes."""
    with psycopg.connect(paying) as conn:
        conn.execute("DROP TABLE IF EXISTS public.payment_outbox, public.other")
        conn.execute(TABLE)


def test_a_dry_run_changes_nothing(run: Run, paying: str) -> None:
    legacy(paying, "PENDING", "DISPATCHED")
    before = rows(paying, "SELECT * FROM payment_outbox")
    looked = run("adopt", "--dry-run")
    assert looked.exit_code == 0
    assert "Nothing was changed." in looked.stderr
    assert rows(paying, "SELECT * FROM payment_outbox") == before
    assert states(paying) == []


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"status": "DISPATCHING"}, "its status is 'DISPATCHING'"),
        ({"status": "LIMBO"}, "its status is 'LIMBO'"),
        ({"sequence_id": 5}, "its number is 5, after 2 of 'acme'"),
        ({"payload": json.dumps({**PAYLOAD, "amount": 0})}, "AMOUNT_INVALID"),
        ({"payload": json.dumps({**PAYLOAD, "amount": 12.345})}, "AMOUNT_INVALID"),
        ({"payload": json.dumps({"amount": "1", "currency": "EUR"})}, "DESTINATION_INVALID"),
        ({"payload": json.dumps([])}, "AMOUNT_INVALID|CURRENCY_UNKNOWN"),
        ({"rail_type": "Sepa"}, "RAIL_INVALID"),
        ({"instruction_id": "acme/1"}, "would be paid a second time"),
    ],
)
def test_it_is_refused_while_a_row_is_unexplained(run: Run, paying: str, wrong: dict[str, Any], why: str) -> None:
    legacy(paying, "DISPATCHED", "PENDING")
    legacy(paying, "PENDING", first=3, **{"status": "PENDING", **wrong})
    looked = run("adopt", "--dry-run", "--json")
    assert looked.exit_code == 6
    (found,) = json.loads(looked.stdout)["unexplained"]
    assert found["outbox_id"] == str(id_of(3))
    assert any(one in found["why"] for one in why.split("|"))
    refused = run("adopt")
    assert refused.exit_code == 5
    assert "Nothing was changed." in " ".join(refused.stderr.split())
    assert is_there(paying)
    assert states(paying) == []
    assert "unexplained" in run("adopt", "--dry-run").stdout


def test_an_id_that_cannot_stay_the_token_is_unexplained(run: Run, paying: str) -> None:
    with psycopg.connect(paying) as conn:
        conn.execute("ALTER TABLE payment_outbox ALTER outbox_id TYPE text")
    legacy(paying, "PENDING", outbox_id="17")
    assert "no UUID" in run("adopt", "--dry-run").stdout


def test_a_table_that_is_not_there_or_is_something_else_is_refused(run: Run, paying: str) -> None:
    assert run("adopt", "--table", "nothing").exit_code == 3
    with psycopg.connect(paying) as conn:
        conn.execute("CREATE TABLE public.other (id integer)")
    refused = run("adopt", "--table", "public.other")
    assert refused.exit_code == 2
    assert "outbox_id" in refused.stderr


def test_two_rows_with_one_key_leave_everything_as_it_was(run: Run, paying: str) -> None:
    """The check is the database's: what the plan did not see stops the move, and undoes it."""
    legacy(paying, "FAILED", instruction_id="acme/1", idempotency_key="key-1")
    legacy(paying, "PENDING", first=2, instruction_id="acme/1", idempotency_key="key-1")
    refused = run("adopt")
    assert refused.exit_code == 5
    assert "already_submitted" in refused.stderr
    assert is_there(paying)
    assert states(paying) == []
