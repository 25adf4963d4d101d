"""`submit`: business row, number and message commit together; the same again changes nothing (P-01)."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any
from uuid import UUID

import psycopg
import pytest

from redrive.systems import payments
from redrive.systems.payments import Instruction, PaymentRefused, Submitted
from tests.support.racing import Connection, together
from tests.support.waiting import wait_until
from tests.systems.payments.conftest import act, answered, instruction, rows

pytestmark = pytest.mark.req("P-01")
BLOCKED = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
US = {"routing_number": "111000025", "account_number": "123456789"}


def _submit(dsn: str, wanted: Instruction) -> Submitted:
    with psycopg.connect(dsn) as conn:
        return payments.submit(conn, wanted)


def test_a_payment_is_a_business_row_a_number_and_a_message_of_one_commit(paying: str, participant: str) -> None:
    with psycopg.connect(paying) as conn:
        first = payments.submit(conn, instruction(participant, 1))
        second = payments.submit(conn, instruction(participant, 2, amount=7, currency="JPY", rail_type="giro"))
    assert (first.sequence_id, second.sequence_id) == (1, 2)
    assert not first.already_existed
    assert rows(
        paying,
        "SELECT m.id, m.destination, m.sequence, m.order_by, n.amount, n.currency FROM redrive.message m"
        " JOIN redrive_payments.intent i ON i.outbox_id = m.id"
        " JOIN redrive_payments.instruction n USING (instruction_id)"
        " WHERE i.participant_id = %s ORDER BY m.sequence",
        participant,
    ) == [
        (first.outbox_id, "payments.sepa", 1, f"payments/{participant}", Decimal("12.34"), "EUR"),
        (second.outbox_id, "payments.giro", 2, f"payments/{participant}", 7, "JPY"),
    ]


def test_what_is_rolled_back_leaves_nothing_and_burns_no_number(paying: str, participant: str) -> None:
    with psycopg.connect(paying) as conn:
        payments.submit(conn, instruction(participant, 1))
        conn.rollback()
    assert _submit(paying, instruction(participant, 2)).sequence_id == 1
    assert (
        rows(paying, "SELECT 1 FROM redrive_payments.instruction WHERE instruction_id = %s", f"{participant}/1") == []
    )


async def test_it_runs_on_an_asynchronous_connection(paying: str, participant: str) -> None:
    async with await psycopg.AsyncConnection.connect(paying) as conn:
        assert await payments.aadd_participant(conn, participant) is False
        submitted = await payments.asubmit(conn, instruction(participant))
    assert (submitted.sequence_id, submitted.state) == (1, "pending")


@pytest.mark.full
def test_it_runs_on_psycopg2_and_on_sqlalchemy(paying: str, participant: str) -> None:
    import psycopg2
    import sqlalchemy

    other = psycopg2.connect(paying)
    try:
        assert isinstance(payments.submit(other, instruction(participant, 1)).outbox_id, UUID)
        other.commit()
    finally:
        other.close()
    engine = sqlalchemy.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(paying))
    with engine.begin() as connection:
        assert payments.submit(connection, instruction(participant, 2)).sequence_id == 2
    engine.dispose()


@pytest.mark.seed("002", "enqueue idempotency `(instruction_id, idempotency_key)` uniqueness")
def test_the_same_instruction_and_key_again_are_the_first_payment(paying: str, participant: str) -> None:
    first = _submit(paying, instruction(participant))
    again = _submit(paying, instruction(participant, amount=Decimal("12.3400")))
    assert again == Submitted(first.outbox_id, 1, already_existed=True, state="pending")
    assert _submit(paying, instruction(participant, 2)).sequence_id == 2


def test_under_a_race_one_instruction_is_one_payment(paying: str, participant: str) -> None:
    def one(conn: Connection) -> Submitted:
        with conn.transaction():
            return payments.submit(conn, instruction(participant))

    submitted = together(paying, [one] * 8)
    assert sorted(one.already_existed for one in submitted) == [False, *[True] * 7]
    assert len({one.outbox_id for one in submitted}) == 1


@pytest.mark.seed("002", "sequence allocator monotonic per participant")
def test_numbers_of_a_participant_have_no_gaps_whoever_submits_and_rolls_back(paying: str, participant: str) -> None:
    def one(number: int) -> int | None:
        with psycopg.connect(paying) as conn:
            submitted = payments.submit(conn, instruction(participant, number))
            if number % 3 == 0:
                conn.rollback()
                return None
            return submitted.sequence_id

    with ThreadPoolExecutor(4) as pool:
        numbers = [number for number in pool.map(one, range(30)) if number is not None]
    assert sorted(numbers) == list(range(1, 21))


@pytest.mark.req("P-08")
def test_bump_gives_the_number_that_the_next_payment_takes_and_burns_none(paying: str, participant: str) -> None:
    bump = "SELECT redrive_payments.bump_participant_outbox_seq(%s)"
    assert rows(paying, bump, participant) == rows(paying, bump, participant) == [(1,)]
    with psycopg.connect(paying) as conn:
        assert conn.execute(bump, [participant]).fetchone() == (1,)
        assert payments.submit(conn, instruction(participant)).sequence_id == 1
        assert conn.execute(bump, [participant]).fetchone() == (2,)
    assert rows(paying, bump, "nobody") == [(None,)]


@pytest.mark.req("P-08")
def test_who_has_bumped_keeps_the_number_until_his_transaction_ends(paying: str, participant: str) -> None:
    with psycopg.connect(paying) as first, psycopg.connect(paying) as second:
        first.execute("SELECT redrive_payments.bump_participant_outbox_seq(%s)", [participant])
        second.execute("SET lock_timeout = '100ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            payments.submit(second, instruction(participant, 2))


@pytest.mark.parametrize(
    ("other", "field"),
    [
        ({"amount": "12.35"}, "amount"),
        ({"currency": "USD"}, "currency"),
        ({"destination": {"iban": "GB33BUKB20201555555555"}}, "destination"),
        ({"rail_type": "ach", "destination": US}, "rail_type"),
    ],
)
def test_an_instruction_used_again_for_something_else_is_refused(
    paying: str, participant: str, other: dict[str, Any], field: str
) -> None:
    _submit(paying, instruction(participant, rail_type="giro"))
    for key in ("", "another"):
        with psycopg.connect(paying) as conn:
            with pytest.raises(PaymentRefused, match="INSTRUCTION_REUSED") as refused:
                payments.submit(conn, instruction(participant, idempotency_key=key, **{"rail_type": "giro", **other}))
            assert refused.value.field == field
            assert conn.execute("SELECT 1").fetchone() == (1,)  # the transaction is still usable


def test_an_instruction_of_another_participant_is_refused(paying: str, participant: str) -> None:
    _submit(paying, instruction(participant))
    with psycopg.connect(paying) as conn:
        payments.add_participant(conn, f"{participant}-b")
        with pytest.raises(PaymentRefused, match="INSTRUCTION_REUSED: participant_id"):
            payments.submit(conn, instruction(f"{participant}-b", instruction_id=f"{participant}/1"))


def test_a_participant_that_nobody_knows_is_refused(paying: str) -> None:
    with psycopg.connect(paying) as conn:
        with pytest.raises(PaymentRefused, match="PARTICIPANT_UNKNOWN: participant_id is 'nobody'"):
            payments.submit(conn, instruction("nobody"))


def test_a_tenant_has_participants_and_instructions_of_its_own(paying: str, participant: str) -> None:
    _submit(paying, instruction(participant))
    with pytest.raises(PaymentRefused, match="PARTICIPANT_UNKNOWN"):
        _submit(paying, instruction(participant, tenant="other"))
    with psycopg.connect(paying) as conn:
        payments.add_participant(conn, participant, tenant="other")
    assert _submit(paying, instruction(participant, tenant="other")).sequence_id == 1


# a second key for one instruction: only when every earlier message is known to have had no effect


def _again(dsn: str, participant: str, key: str = "second") -> Submitted:
    return _submit(dsn, instruction(participant, idempotency_key=key))


# What happened to the first, step by step: in hand, an answer of `conftest.SETTLEMENTS`, an act.
MAY_BE_PAID = (
    (),
    ("in hand",),
    ("delivered",),
    ("retryable",),
    ("held",),
    ("held", "discard"),
    ("dead in doubt",),
    ("dead in doubt", "discard"),
    ("dead with a late success",),
)
NOT_PAID = (("terminal",), ("exhausted",), ("terminal", "discard"), ("cancel",))


def _happen(dsn: str, id: UUID, steps: tuple[str, ...]) -> None:
    for step in steps:
        if step in ("discard", "cancel"):
            act(dsn, step, id)
        else:
            answered(dsn, id, None if step == "in hand" else step)


@pytest.mark.req("P-05")
@pytest.mark.parametrize("steps", MAY_BE_PAID, ids=" then ".join)
def test_a_second_key_is_refused_while_the_first_may_have_been_paid(
    paying: str, participant: str, steps: tuple[str, ...]
) -> None:
    first = _submit(paying, instruction(participant))
    _happen(paying, first.outbox_id, steps)
    with pytest.raises(PaymentRefused, match="INSTRUCTION_ALREADY_SUBMITTED") as refused:
        _again(paying, participant)
    assert str(first.outbox_id) in str(refused.value)
    assert rows(paying, "SELECT count(*) FROM redrive_payments.intent WHERE participant_id = %s", participant) == [(1,)]


@pytest.mark.req("P-11")
@pytest.mark.parametrize("steps", NOT_PAID, ids=" then ".join)
def test_a_second_key_is_refused_where_there_is_evidence_of_the_first(
    paying: str, participant: str, steps: tuple[str, ...]
) -> None:
    """However it ended: something says that it was paid."""
    first = _submit(paying, instruction(participant))
    _happen(paying, first.outbox_id, steps)
    rows(paying, "SELECT redrive.add_evidence(%s, 'statement', 'entry 7', 'ref-7', now())", first.outbox_id)
    with pytest.raises(PaymentRefused, match="INSTRUCTION_ALREADY_SUBMITTED"):
        _again(paying, participant)


@pytest.mark.req("P-05")
@pytest.mark.parametrize("steps", NOT_PAID, ids=" then ".join)
def test_a_second_key_is_accepted_once_the_first_is_known_not_to_be_paid(
    paying: str, participant: str, steps: tuple[str, ...]
) -> None:
    first = _submit(paying, instruction(participant))
    _happen(paying, first.outbox_id, steps)
    second = _again(paying, participant)
    assert (second.sequence_id, second.already_existed) == (2, False)
    assert rows(paying, "SELECT redrive.state_of(%s)", first.outbox_id)[0][0] in ("discarded", "cancelled")
    with pytest.raises(PaymentRefused, match="INSTRUCTION_ALREADY_SUBMITTED"):
        _again(paying, participant, "third")


@pytest.mark.req("P-05")
def test_what_a_second_key_replaces_cannot_be_requeued_any_more(paying: str, participant: str) -> None:
    first = _submit(paying, instruction(participant))
    answered(paying, first.outbox_id, "terminal")
    _again(paying, participant)
    assert act(paying, "requeue", first.outbox_id) == "discarded"


@pytest.mark.req("P-05")
def test_a_requeue_and_a_second_key_at_the_same_moment_are_never_both(paying: str, participant: str) -> None:
    """Whoever comes second waits for the parked record, and finds that it is gone."""
    first = _submit(paying, instruction(participant))
    answered(paying, first.outbox_id, "terminal")
    with psycopg.connect(paying) as operator, ThreadPoolExecutor(1) as pool:
        assert operator.execute(
            "SELECT redrive.requeue_1(%s, 'anna', 'the rail is back')", [first.outbox_id]
        ).fetchone() == ("done",)
        submitting = pool.submit(_again, paying, participant)
        wait_until(lambda: rows(paying, BLOCKED) != [(0,)], seconds=60, what="a submit that waits for the operator")
        operator.commit()
        with pytest.raises(PaymentRefused, match="INSTRUCTION_ALREADY_SUBMITTED"):
            submitting.result(60)


@pytest.mark.req("P-05")
def test_two_second_keys_at_the_same_moment_are_one_payment(paying: str, participant: str) -> None:
    first = _submit(paying, instruction(participant))
    answered(paying, first.outbox_id, "terminal")

    def again(number: int) -> Callable[[Connection], str]:
        wanted = instruction(participant, idempotency_key=f"key-{number}")
        return lambda conn: _answer(conn, wanted)

    answers = together(paying, [again(number) for number in range(4)])
    assert sorted(answers) == [*["INSTRUCTION_ALREADY_SUBMITTED"] * 3, "submitted"]


def _answer(conn: Connection, wanted: Instruction) -> str:
    try:
        with conn.transaction():
            payments.submit(conn, wanted)
    except PaymentRefused as refused:
        return refused.reason
    return "submitted"


@pytest.mark.parametrize("table", ["instruction", "intent"])
@pytest.mark.parametrize(
    "change", ["UPDATE redrive_payments.{} SET created_at = now()", "DELETE FROM redrive_payments.{}"]
)
def test_what_was_asked_for_cannot_be_changed(paying: str, participant: str, table: str, change: str) -> None:
    _submit(paying, instruction(participant))
    with psycopg.connect(paying) as conn, pytest.raises(psycopg.errors.InsufficientPrivilege, match="append-only"):
        conn.execute(change.format(table).encode())


def test_a_number_that_is_taken_cannot_be_given_again(paying: str, participant: str) -> None:
    submitted = _submit(paying, instruction(participant))
    with psycopg.connect(paying) as conn, pytest.raises(psycopg.errors.UniqueViolation, match="participant_sequence"):
        conn.execute(
            "INSERT INTO redrive_payments.intent SELECT gen_random_uuid(), tenant, instruction_id, 'k', participant_id,"
            " sequence_id, rail_type, created_at FROM redrive_payments.intent WHERE outbox_id = %s",
            [submitted.outbox_id],
        )
