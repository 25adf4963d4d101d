"""A legacy `payment_outbox` is moved in place: all rows over, with their ids and numbers, then it is gone (P-09)."""

from __future__ import annotations

import json

import psycopg
import pytest

from redrive.systems import payments
from tests.systems.payments.conftest import Run, instruction, rows
from tests.systems.payments.legacy import TABLE, id_of, is_there, legacy, states
from tests.systems.payments.scripted import ScriptedRail, desk

pytestmark = pytest.mark.req("P-09")


@pytest.fixture
def paying(database: str) -> str:
    """A database for each test, with a legacy outbox in it."""
    with psycopg.connect(database) as conn:
        conn.execute(TABLE)
    return database


def test_every_row_is_moved_with_its_id_and_number_and_the_table_is_gone(run: Run, paying: str) -> None:
    legacy(paying, "DISPATCHED", "FAILED", "PENDING")
    legacy(paying, "RETRYABLE", first=4, attempt_count=2)
    done = run("adopt", "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["counts"] == {"waiting": 1, "doubtful": 1, "paid": 1, "failed": 1}
    assert not is_there(paying)
    assert states(paying) == [
        (1, id_of(1), "delivered", False),
        (2, id_of(2), "dead", True),
        (3, id_of(3), "pending", False),
        (4, id_of(4), "pending", True),
    ]
    assert rows(paying, "SELECT enqueued, pending, leased, parked, closed FROM redrive.conservation") == [
        (4, 2, 0, 1, 1)
    ]
    with psycopg.connect(paying) as conn:
        assert payments.submit(conn, instruction("acme", 5)).sequence_id == 5


def test_a_status_is_explained_by_whoever_knows_it(run: Run, paying: str) -> None:
    legacy(paying, "DISPATCHING", "LIMBO")
    assert run("adopt", "--status", "DISPATCHING=doubtful", "--status", "limbo=paid").exit_code == 0
    assert [(state, doubt) for _, _, state, doubt in states(paying)] == [("pending", True), ("delivered", False)]
    assert run("adopt", "--status", "X=perhaps").exit_code == 2


def test_what_was_paid_before_is_not_paid_again_under_another_key(run: Run, paying: str) -> None:
    legacy(paying, "DISPATCHED", "FAILED")
    assert run("adopt").exit_code == 0
    with psycopg.connect(paying) as conn:
        for number in (1, 2):
            with pytest.raises(payments.PaymentRefused, match="INSTRUCTION_ALREADY_SUBMITTED"):
                payments.submit(conn, instruction("acme", number, idempotency_key="another"))
        again = payments.submit(conn, instruction("acme", 1, idempotency_key="key-1"))
    assert (again.outbox_id, again.already_existed, again.state) == (id_of(1), True, "delivered")


async def test_what_the_old_dispatcher_had_tried_is_asked_for_before_it_is_sent(run: Run, paying: str) -> None:
    legacy(paying, "RETRYABLE", attempt_count=1)
    legacy(paying, "PENDING", first=2)
    assert run("adopt").exit_code == 0
    rail = ScriptedRail(ledger=[{"token": str(id_of(1)), "reference": "old-1", "amount": "12.34", "currency": "EUR"}])
    async with desk(paying, rail) as at:
        await at.run()
        assert at.rail.methods == ["GET", "POST"]
        assert [one["token"] for one in at.rail.sent] == [str(id_of(2))]
        assert await at.states([id_of(1), id_of(2)]) == ["delivered", "delivered"]


def test_the_story_says_where_it_came_from(run: Run, paying: str) -> None:
    legacy(paying, "DISPATCHED", rail_reference="old-7")
    assert run("adopt").exit_code == 0
    story = run("audit", "acme/1").stdout
    assert "payments adopt: it is adopted, reference old-7. Reason: was DISPATCHED in payment_outbox." in story


@pytest.mark.req("P-10")
def test_a_row_whose_instruction_has_a_payment_here_is_refused(run: Run, paying: str) -> None:
    with psycopg.connect(paying) as conn:
        payments.add_participant(conn, "else")
        payments.submit(conn, instruction("else", 1, instruction_id="acme/1"))
    legacy(paying, "PENDING", "PENDING")
    refused = run("adopt", "--dry-run")
    assert refused.exit_code == 6
    assert "acme/1" in refused.stdout.replace("\n", "")
    assert run("adopt").exit_code != 0
    assert is_there(paying)


@pytest.mark.req("P-10")
@pytest.mark.parametrize("status", ["PENDING", "FAILED"])
def test_a_row_that_the_statement_has_is_held_with_that_evidence(run: Run, paying: str, status: str) -> None:
    legacy(paying, status)
    entry = {
        "cursor": "1",
        "token": str(id_of(1)),
        "instruction_id": "acme/1",
        "participant_id": "acme",
        "sequence_id": 1,
        "amount": "12.34",
        "currency": "EUR",
        "reference": "old-1",
        "effected_at": 0,
    }
    rows(paying, "SELECT redrive_payments.keep_statement_1('sepa', %s::json)", json.dumps([entry]))
    done = run("adopt")
    assert done.exit_code == 0, done.stderr
    assert [(state, doubt) for _, _, state, doubt in states(paying)] == [("held", True)]
    assert rows(paying, "SELECT reference FROM redrive.evidence") == [("old-1",)]
