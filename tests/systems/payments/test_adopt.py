"""A legacy `payment_outbox` is moved in place: all rows over, then it is gone; not while one is unexplained (P-09)."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import psycopg
import pytest

from redrive.systems import payments
from tests.systems.payments.conftest import IBAN, Run, instruction, rows
from tests.systems.payments.scripted import ScriptedRail, desk

pytestmark = pytest.mark.req("P-09")

TABLE = """
    CREATE TABLE public.payment_outbox (
        outbox_id uuid PRIMARY KEY, instruction_id text NOT NULL, participant_id text NOT NULL,
        sequence_id bigint NOT NULL, idempotency_key text NOT NULL, rail_type text NOT NULL, payload jsonb NOT NULL,
        status text NOT NULL,
        attempt_count integer NOT NULL DEFAULT 0, rail_reference text, created_at timestamptz NOT NULL DEFAULT now())
"""
PAYLOAD = {"amount": 12.34, "currency": "EUR", "destination": {"iban": IBAN}}


def _id(number: int) -> UUID:
    return UUID(int=0x0190_0000_0000_7000_8000_0000_0000_0000 + number)


@pytest.fixture
def paying(database: str) -> str:
    """A database for each test, with a legacy outbox in it."""
    with psycopg.connect(database) as conn:
        conn.execute(TABLE)
    return database


def _legacy(dsn: str, *statuses: str, participant: str = "acme", first: int = 1, **other: Any) -> None:
    """Rows of a participant, numbered from `first`."""
    with psycopg.connect(dsn) as conn:
        for number, status in enumerate(statuses, first):
            values = {
                "outbox_id": _id(number),
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


def _states(dsn: str) -> list[tuple[Any, ...]]:
    return rows(
        dsn,
        "SELECT i.sequence_id, i.outbox_id, coalesce(k.reason, redrive.state_of(i.outbox_id)),"
        " coalesce(p.in_doubt_since, k.in_doubt_since) IS NOT NULL"
        " FROM redrive_payments.intent i LEFT JOIN redrive.parked k ON k.id = i.outbox_id"
        " LEFT JOIN redrive.pending p ON p.id = i.outbox_id ORDER BY i.sequence_id",
    )


def _is_there(dsn: str) -> bool:
    return rows(dsn, "SELECT to_regclass('payment_outbox') IS NOT NULL") == [(True,)]


def test_every_row_is_moved_with_its_id_and_number_and_the_table_is_gone(run: Run, paying: str) -> None:
    _legacy(paying, "DISPATCHED", "FAILED", "PENDING")
    _legacy(paying, "RETRYABLE", first=4, attempt_count=2)
    done = run("adopt", "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["counts"] == {"waiting": 1, "doubtful": 1, "paid": 1, "failed": 1}
    assert not _is_there(paying)
    assert _states(paying) == [
        (1, _id(1), "delivered", False),
        (2, _id(2), "dead", True),
        (3, _id(3), "pending", False),
        (4, _id(4), "pending", True),
    ]
    assert rows(paying, "SELECT enqueued, pending, leased, parked, closed FROM redrive.conservation") == [
        (4, 2, 0, 1, 1)
    ]
    with psycopg.connect(paying) as conn:
        assert payments.submit(conn, instruction("acme", 5)).sequence_id == 5


def test_a_dry_run_changes_nothing(run: Run, paying: str) -> None:
    _legacy(paying, "PENDING", "DISPATCHED")
    before = rows(paying, "SELECT * FROM payment_outbox")
    looked = run("adopt", "--dry-run")
    assert looked.exit_code == 0
    assert "Nothing was changed." in looked.stderr
    assert rows(paying, "SELECT * FROM payment_outbox") == before
    assert _states(paying) == []


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
    _legacy(paying, "DISPATCHED", "PENDING")
    _legacy(paying, "PENDING", first=3, **{"status": "PENDING", **wrong})
    looked = run("adopt", "--dry-run", "--json")
    assert looked.exit_code == 6
    (found,) = json.loads(looked.stdout)["unexplained"]
    assert found["outbox_id"] == str(_id(3))
    assert any(one in found["why"] for one in why.split("|"))
    refused = run("adopt")
    assert refused.exit_code == 5
    assert "Nothing was changed." in " ".join(refused.stderr.split())
    assert _is_there(paying)
    assert _states(paying) == []
    assert "unexplained" in run("adopt", "--dry-run").stdout


def test_an_id_that_cannot_stay_the_token_is_unexplained(run: Run, paying: str) -> None:
    with psycopg.connect(paying) as conn:
        conn.execute("ALTER TABLE payment_outbox ALTER outbox_id TYPE text")
    _legacy(paying, "PENDING", outbox_id="17")
    assert "no UUID" in run("adopt", "--dry-run").stdout


def test_a_status_is_explained_by_whoever_knows_it(run: Run, paying: str) -> None:
    _legacy(paying, "DISPATCHING", "LIMBO")
    assert run("adopt", "--status", "DISPATCHING=doubtful", "--status", "limbo=paid").exit_code == 0
    assert [(state, doubt) for _, _, state, doubt in _states(paying)] == [("pending", True), ("delivered", False)]
    assert run("adopt", "--status", "X=perhaps").exit_code == 2


def test_what_was_paid_before_is_not_paid_again_under_another_key(run: Run, paying: str) -> None:
    _legacy(paying, "DISPATCHED", "FAILED")
    assert run("adopt").exit_code == 0
    with psycopg.connect(paying) as conn:
        for number in (1, 2):
            with pytest.raises(payments.PaymentRefused, match="INSTRUCTION_ALREADY_SUBMITTED"):
                payments.submit(conn, instruction("acme", number, idempotency_key="another"))
        again = payments.submit(conn, instruction("acme", 1, idempotency_key="key-1"))
    assert (again.outbox_id, again.already_existed, again.state) == (_id(1), True, "delivered")


async def test_what_the_old_dispatcher_had_tried_is_asked_for_before_it_is_sent(run: Run, paying: str) -> None:
    _legacy(paying, "RETRYABLE", attempt_count=1)
    _legacy(paying, "PENDING", first=2)
    assert run("adopt").exit_code == 0
    rail = ScriptedRail(ledger=[{"token": str(_id(1)), "reference": "old-1", "amount": "12.34", "currency": "EUR"}])
    async with desk(paying, rail) as at:
        await at.run()
        assert at.rail.methods == ["GET", "POST"]
        assert [one["token"] for one in at.rail.sent] == [str(_id(2))]
        assert await at.states([_id(1), _id(2)]) == ["delivered", "delivered"]


def test_the_story_says_where_it_came_from(run: Run, paying: str) -> None:
    _legacy(paying, "DISPATCHED", rail_reference="old-7")
    assert run("adopt").exit_code == 0
    story = run("audit", "acme/1").stdout
    assert "payments adopt: it is adopted, reference old-7. Reason: was DISPATCHED in payment_outbox." in story


def test_a_table_that_is_not_there_or_is_something_else_is_refused(run: Run, paying: str) -> None:
    assert run("adopt", "--table", "nothing").exit_code == 3
    with psycopg.connect(paying) as conn:
        conn.execute("CREATE TABLE public.other (id integer)")
    refused = run("adopt", "--table", "public.other")
    assert refused.exit_code == 2
    assert "outbox_id" in refused.stderr


def test_two_rows_with_one_key_leave_everything_as_it_was(run: Run, paying: str) -> None:
    """The check is the database's: what the plan did not see stops the move, and undoes it."""
    _legacy(paying, "FAILED", instruction_id="acme/1", idempotency_key="key-1")
    _legacy(paying, "PENDING", first=2, instruction_id="acme/1", idempotency_key="key-1")
    refused = run("adopt")
    assert refused.exit_code == 5
    assert "exists" in refused.stderr
    assert _is_there(paying)
    assert _states(paying) == []
