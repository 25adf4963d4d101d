"""The document's names for an auditor: views with its columns, who may read them, what its indexes became (P-08)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import psycopg
import pytest

from redrive.store.runtime.postgres import PostgresStore
from redrive.systems import payments
from tests.support import bulk
from tests.support import messages as m
from tests.support.databases import fresh_database
from tests.systems.payments.conftest import SETTLEMENTS, act, answered, claimed, instruction, rows

pytestmark = pytest.mark.req("P-08")

SEQUENCES = {"participant_id", "next_sequence_id"}
SHARED = {
    "outbox_id", "instruction_id", "participant_id", "sequence_id", "idempotency_key", "rail_type", "payload",
    "created_at",
}  # fmt: skip
PENDING = {*SHARED, "attempt_count", "next_attempt_at"}
ATTEMPTS = {
    *SHARED, "attempt_id", "attempt_no", "state", "claimed_at", "completed_at", "rail_reference", "rail_code",
    "error_code", "error_message", "latency_ms",
}  # fmt: skip


@pytest.mark.parametrize(
    ("view", "columns"),
    [
        ("participant_outbox_sequences", SEQUENCES),
        ("payment_outbox_pending", PENDING),
        ("payment_outbox_attempts", ATTEMPTS),
    ],
)
def test_a_view_has_the_columns_that_the_document_names(paying: str, view: str, columns: set[str]) -> None:
    query = (
        "SELECT column_name FROM information_schema.columns WHERE table_schema = 'redrive_payments' AND table_name = %s"
    )
    assert {name for (name,) in rows(paying, query, view)} >= columns


@pytest.mark.req("P-04")
@pytest.mark.parametrize(
    ("how", "state", "error_code"),
    [
        ("delivered", "DISPATCHED", None),
        ("retryable", "RETRYABLE", "UNAVAILABLE"),
        ("terminal", "FAILED", "ACCOUNT_CLOSED"),
        ("exhausted", "FAILED", "UNAVAILABLE"),
        ("held", "HELD", "TIMEOUT"),
    ],
)
def test_every_outcome_is_an_attempt_with_its_state_and_codes(
    paying: str, participant: str, how: str, state: str, error_code: str | None
) -> None:
    with psycopg.connect(paying) as conn:
        submitted = payments.submit(conn, instruction(participant))
    answered(paying, submitted.outbox_id, how)
    query = (
        "SELECT state, attempt_no, rail_reference, rail_code, error_code, latency_ms, payload ->> 'amount', sequence_id"
        " FROM redrive_payments.payment_outbox_attempts WHERE participant_id = %s"
    )
    paid = ("rail-1", "ACCEPTED") if how == "delivered" else (None, None)
    assert rows(paying, query, participant) == [(state, 1, *paid, error_code, 5, "12.34", 1)]


@pytest.mark.req("P-04")
def test_the_rails_code_and_words_are_in_the_attempt(paying: str, participant: str) -> None:
    async def declined() -> None:
        async with PostgresStore(paying) as store:
            attempt = await claimed(store, submitted.outbox_id)
            text = "Rail 402 INSUFFICIENT_FUNDS"
            await store.settle(m.WORKER, [m.outcome(attempt, SETTLEMENTS["terminal"], text=text)])

    with psycopg.connect(paying) as conn:
        submitted = payments.submit(conn, instruction(participant))
    asyncio.run(declined())
    query = "SELECT rail_code, error_message FROM redrive_payments.payment_outbox_attempts WHERE outbox_id = %s"
    assert rows(paying, query, submitted.outbox_id) == [("INSUFFICIENT_FUNDS", "Rail 402 INSUFFICIENT_FUNDS")]


def test_an_attempt_keeps_its_id_when_it_ends_and_no_two_rows_share_one(paying: str, participant: str) -> None:
    ids = (
        "SELECT attempt_id FROM redrive_payments.payment_outbox_attempts WHERE participant_id = %s ORDER BY created_at"
    )

    async def settle() -> list[tuple[object, ...]]:
        async with PostgresStore(paying) as store:
            attempt = await claimed(store, submitted.outbox_id)
            in_hand = rows(paying, ids, participant)
            await store.settle(m.WORKER, [m.outcome(attempt, SETTLEMENTS["terminal"])])
            return in_hand

    with psycopg.connect(paying) as conn:
        submitted = payments.submit(conn, instruction(participant))
    in_hand = asyncio.run(settle())
    assert rows(paying, ids, participant) == in_hand
    act(paying, "discard", submitted.outbox_id)
    ended = rows(paying, ids, participant)
    assert ended[:1] == in_hand
    assert len(set(ended)) == 2
    assert rows(paying, ids, participant) == ended


def test_an_auditor_reads_them_and_sees_no_account_number_and_no_other_tenant(paying: str, participant: str) -> None:
    with psycopg.connect(paying) as conn:
        payments.submit(conn, instruction(participant))
    with psycopg.connect(paying) as conn:
        conn.execute("SET ROLE redrive_auditor")
        for view in ("payment_outbox_pending", "payment_outbox_attempts", "participant_outbox_sequences"):
            conn.execute(f"SELECT * FROM redrive_payments.{view}".encode())
        conn.execute("SET redrive.tenant = 'default'")
        seen = conn.execute("SELECT * FROM redrive_payments.payment_outbox_pending").fetchall()
        assert participant in str(seen)
        assert "DE755121" not in str(seen)
        assert "…6199" in str(seen)
        conn.execute("SET redrive.tenant = 'other'")
        assert conn.execute("SELECT count(*) FROM redrive_payments.payment_outbox_pending").fetchone() == (0,)
        assert conn.execute("SELECT count(*) FROM redrive_payments.participant").fetchone() == (0,)


@pytest.mark.parametrize("role", ["redrive_producer", "redrive_relay", "redrive_viewer", "redrive_operator"])
def test_no_role_writes_the_tables(paying: str, role: str) -> None:
    for table in ("participant", "instruction", "intent"):
        with psycopg.connect(paying) as conn:
            conn.execute(f"SET ROLE {role}".encode())
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                conn.execute(f"INSERT INTO redrive_payments.{table} SELECT * FROM redrive_payments.{table}".encode())


def test_a_producer_submits_and_reads_nothing(paying: str, participant: str) -> None:
    with psycopg.connect(paying) as conn:
        conn.execute("SET ROLE redrive_producer")
        payments.submit(conn, instruction(participant))
        conn.commit()
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            conn.execute("SELECT * FROM redrive_payments.instruction")


# the document's indexes: a view has none, so each purpose is served by one of the tables below


@pytest.fixture(scope="module")
def stocked(server_dsn: str, template: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """Enough rows that a plan which reads them all would be dearer than an index."""
    with fresh_database(server_dsn, template=template) as dsn, psycopg.connect(dsn, autocommit=True) as conn:
        with conn.transaction():
            for number in range(40):
                payments.add_participant(conn, f"p-{number}")
                for one in range(25):
                    payments.submit(conn, instruction(f"p-{number}", one))
        bulk.pending(conn, 2000)
        bulk.closed(conn, 4000)
        conn.execute("VACUUM ANALYZE")
        yield conn


# The document's name, a query of that purpose, and the index that serves it. {id}: of a message with attempts.
INDEXES = {
    "ix_pending_due": (
        (
            "SELECT lane FROM redrive.lane_wake WHERE destination = 'payments.sepa' AND level = 1 AND due_at <= now()"
            " ORDER BY due_at, lane LIMIT 100"
        ),
        "lane_wake_due",
    ),
    "ix_pending_participant_due": (
        (
            "SELECT id FROM redrive.pending WHERE lane = (SELECT id FROM redrive.stream WHERE tenant = 'default' AND"
            " order_by = 'payments/p-7') ORDER BY sequence LIMIT 1"
        ),
        "pending_lane",
    ),
    "ix_attempts_by_outbox": (
        "SELECT * FROM redrive_payments.payment_outbox_attempts WHERE outbox_id = '{id}' ORDER BY claimed_at DESC",
        r"attempt_\w*message_id_idx",
    ),
    "ix_attempts_by_instruction": (
        (
            "SELECT * FROM redrive_payments.payment_outbox_attempts WHERE tenant = 'default'"
            " AND instruction_id = 'p-7/3' ORDER BY claimed_at DESC"
        ),
        "intent_instruction_key|intent_instruction",
    ),
    "UNIQUE (participant_id, sequence_id)": (
        (
            "SELECT outbox_id FROM redrive_payments.intent WHERE tenant = 'default' AND participant_id = 'p-7'"
            " AND sequence_id = 3"
        ),
        "intent_participant_sequence|intent_number",
    ),
    "UNIQUE (instruction_id, idempotency_key)": (
        (
            "SELECT outbox_id FROM redrive_payments.intent WHERE tenant = 'default' AND instruction_id = 'p-7/3'"
            " AND idempotency_key = 'p-7/3'"
        ),
        "intent_instruction_key|intent_instruction",
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("name", INDEXES)
def test_each_index_of_the_document_has_one_that_serves_its_purpose(
    stocked: psycopg.Connection[tuple[object, ...]], name: str
) -> None:
    query, index = INDEXES[name]
    found = stocked.execute("SELECT message_id FROM redrive.attempt ORDER BY message_id LIMIT 1").fetchone()
    assert found is not None
    explain = f"EXPLAIN {query.format(id=found[0])}".encode()
    plan = "\n".join(str(line) for (line,) in stocked.execute(explain).fetchall())
    assert re.search(rf"Index.* (?:using|on) ({index})\b", plan), plan
    assert not re.search(r"Seq Scan on (?:intent|instruction)\b", plan), plan


@pytest.mark.full
def test_what_is_dispatching_is_found_without_looking_at_the_archive(
    stocked: psycopg.Connection[tuple[object, ...]],
) -> None:
    """ix_attempts_dispatching_age: what is in hand is a small table of its own, which needs no index by age."""
    query = "EXPLAIN SELECT id FROM redrive.lease WHERE claimed_at < now() - interval '120 s'"
    plan = "\n".join(str(line) for (line,) in stocked.execute(query).fetchall())
    assert "lease" in plan
    assert "attempt" not in plan
