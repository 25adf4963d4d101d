"""Only payments puts messages into its rails, and only its own role writes what the rails say (P-13)."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

import redrive
from redrive.errors import ActRefused, DestinationOwned
from redrive.events import Events
from redrive.message import NewMessage
from redrive.operate.cli.main import cli
from redrive.operate.desk import workflow
from redrive.produce.payload import canonical_json
from redrive.recover.duties import run_if_due
from redrive.store.runtime.postgres import PostgresStore
from redrive.systems import payments
from redrive.systems.payments.names import AMOUNT_HEADER, destination_of, key_of, order_of
from redrive.systems.payments.validation import checked
from redrive.who import Who
from tests.support import messages as m
from tests.systems.payments.conftest import SETTLEMENTS, act, answered, claimed, instruction, rows

pytestmark = pytest.mark.req("P-13")

ROLES = (
    "redrive_producer", "redrive_relay", "redrive_operator", "redrive_viewer", "redrive_auditor", "redrive_console",
    "redrive_payments",
)  # fmt: skip
READERS = {"redrive_viewer", "redrive_operator", "redrive_auditor", "redrive_console"}
# The console is a member of redrive_operator. What is not named here, nobody but the owner may execute.
ALLOWED: dict[str, set[str]] = {
    "submit_1": {"redrive_producer"},
    "add_participant_1": {"redrive_producer"},
    "bump_participant_outbox_seq": {"redrive_producer"},
    "statement_cursor_1": {"redrive_payments"},
    "keep_statement_1": {"redrive_payments"},
    "open_payments_1": {"redrive_payments"},
    "entries_1": {"redrive_payments"},
    "strangers_1": {"redrive_payments"},
    "agree_1": {"redrive_payments"},
    "confirm_late_1": {"redrive_payments"},
    "link_strangers_1": {"redrive_payments"},
    "acknowledge_finding_1": {"redrive_operator", "redrive_console"},
    "compared_1": {"redrive_payments"},
    "count_findings_1": {"redrive_payments", "redrive_relay", "redrive_operator", "redrive_console"},
    "state_of_attempt": READERS | {"redrive_relay"},
    "terms_json": READERS,
}
# Of the engine: what would put a message into a rail, or say that one had an effect, without being asked for it.
INTERNAL = ("enqueue_internal", "adopt_1", "give_up", "owner_of", "refuse_owned", "park_owned")
ENTRY = {
    "cursor": "1",
    "token": "t",
    "instruction_id": "i",
    "participant_id": "p",
    "sequence_id": 1,
    "amount": "1.00",
    "currency": "EUR",
    "reference": "r",
    "effected_at": 0,
}
FORGED = {
    "forge an entry": ("SELECT redrive_payments.keep_statement_1('sepa', %s::json)", [json.dumps([ENTRY])]),
    "confirm alone": ("SELECT redrive_payments.confirm_late_1(gen_random_uuid())", []),
    "lift the pause": ("SELECT redrive_payments.compared_1('sepa', '[]')", []),
    "forget a difference": ("SELECT redrive_payments.agree_1('sepa', ARRAY[gen_random_uuid()])", []),
    "link an entry": ("SELECT redrive_payments.link_strangers_1('sepa')", []),
    "give up": ("SELECT redrive.give_up(gen_random_uuid(), 'anna', 'x', now())", []),
}


def executable(dsn: str, schema: str) -> dict[str, set[str]]:
    """The functions of a schema, and the roles that may execute each."""
    found = rows(
        dsn,
        "SELECT p.proname, r.name FROM pg_proc p CROSS JOIN unnest(%s::text[]) AS r(name)"
        " WHERE p.pronamespace = %s::regnamespace AND has_function_privilege(r.name, p.oid, 'EXECUTE')",
        list(ROLES),
        schema,
    )
    return {name: {role for one, role in found if one == name} for name, _ in found}


def test_every_function_is_executable_by_the_roles_that_need_it_and_by_no_other(paying: str) -> None:
    """What another package adds is named above, or it has no grant."""
    assert executable(paying, "redrive_payments") == ALLOWED


@pytest.mark.parametrize("name", INTERNAL)
def test_the_internal_functions_of_the_engine_have_no_grant(paying: str, name: str) -> None:
    assert rows(
        paying, "SELECT count(*) FROM pg_proc WHERE pronamespace = 'redrive'::regnamespace AND proname = %s", name
    ) == [(1,)]
    assert name not in executable(paying, "redrive")


@pytest.mark.parametrize("role", [role for role in ROLES if role != "redrive_payments"])
@pytest.mark.parametrize("what", FORGED)
def test_no_person_and_no_producer_writes_what_a_rail_says(paying: str, role: str, what: str) -> None:
    query, values = FORGED[what]
    with psycopg.connect(paying) as conn:
        conn.execute(f"SET ROLE {role}".encode())
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied"):
            conn.execute(query.encode(), values)


def test_the_systems_own_role_compares_the_books(paying: str) -> None:
    with psycopg.connect(paying) as conn:
        conn.execute("SET ROLE redrive_payments")
        conn.execute("SELECT redrive_payments.keep_statement_1('other', '[]')")
        conn.execute("SELECT redrive_payments.compared_1('other', '[]')")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            conn.execute("SELECT * FROM redrive_payments.statement_entry")


def well_formed(participant: str, **other: Any) -> NewMessage:
    """A message as `submit` would make it."""
    payment = checked(instruction(participant))
    return NewMessage(
        destination_of("sepa"),
        payment.payload,
        key=key_of(payment.instruction_id, payment.idempotency_key),
        kind="payment",
        order_by=order_of(participant),
        headers={AMOUNT_HEADER: payment.amount_text},
        **other,
    )


def enqueue_one(conn: psycopg.Connection[Any], message: NewMessage) -> None:
    headers = message.headers
    redrive.enqueue(
        conn, message.destination, message.payload, key=message.key, headers=headers, order_by=message.order_by
    )


def enqueue_among_others(conn: psycopg.Connection[Any], message: NewMessage) -> None:
    redrive.enqueue_many(conn, [NewMessage("mail", {}), message])


@pytest.mark.parametrize("role", ["redrive_producer", "redrive_relay", None])
@pytest.mark.parametrize("enqueue", [enqueue_one, enqueue_among_others])
def test_nobody_enqueues_into_a_rail_not_even_the_owner(
    paying: str, participant: str, role: str | None, enqueue: Callable[[psycopg.Connection[Any], NewMessage], None]
) -> None:
    message = well_formed(participant)
    with psycopg.connect(paying) as conn:
        if role is not None:
            conn.execute(f"SET ROLE {role}".encode())
        with pytest.raises(DestinationOwned, match=r"payments\.sepa belongs to the system payments"):
            enqueue(conn, message)
    assert rows(paying, "SELECT count(*) FROM redrive.message WHERE order_by = %s", order_of(participant)) == [(0,)]


def test_the_refusal_in_sql_is_of_its_own_state_and_names_the_schema(paying: str) -> None:
    with psycopg.connect(paying) as conn, pytest.raises(psycopg.errors.InsufficientPrivilege) as refused:
        conn.execute("SELECT redrive.enqueue_1('payments.anything', '{}')")
    assert refused.value.diag.message_hint == "Call a function of the schema redrive_payments."


@pytest.mark.parametrize("name", ["payments", "payment.sepa", "Payments.sepa", "my.payments.sepa"])
def test_a_destination_of_another_name_is_nobodys(paying: str, name: str) -> None:
    with psycopg.connect(paying) as conn:
        redrive.enqueue(conn, name, {})
        conn.rollback()


async def test_a_discarded_payment_is_not_copied_but_submitted_again(paying: str, participant: str) -> None:
    with psycopg.connect(paying) as conn:
        id = payments.submit(conn, instruction(participant)).outbox_id
    async with PostgresStore(paying) as store:
        attempt = await claimed(store, id)
        await store.settle(m.WORKER, [m.outcome(attempt, SETTLEMENTS["terminal"])])
        act(paying, "discard", id)
        with pytest.raises(ActRefused, match="belongs to a system") as refused:
            await workflow.copy(store, id, "another-key", Who(actor="anna", reason="a test"))
    assert "redrive payments submit" in str(refused.value)
    assert rows(paying, "SELECT count(*) FROM redrive.message WHERE order_by = %s", order_of(participant)) == [(1,)]
    with psycopg.connect(paying) as conn:
        again = payments.submit(conn, instruction(participant, idempotency_key="again"))
    assert not again.already_existed


SUBMIT = (
    "SELECT result FROM redrive_payments.submit_1('default', %(instruction)s, 'k', %(participant)s, 'sepa', %(amount)s,"
    " 'EUR', %(hash)s, %(shown)s, %(body)s)"
)


@pytest.mark.parametrize("changed", ["amount", "hash", "shown", "body", None])
def test_a_producer_submits_no_payload_that_says_something_else_than_the_books(
    paying: str, participant: str, changed: str | None
) -> None:
    payment = checked(instruction(participant))
    other = checked(instruction(participant, destination={"iban": "NL91ABNA0417164300"}))
    values = {
        "instruction": payment.instruction_id,
        "participant": participant,
        "amount": payment.amount,
        "hash": hashlib.sha256(canonical_json(payment.destination)).digest(),
        "shown": json.dumps(payment.destination_shown),
        "body": canonical_json(payment.payload),
    }
    wrong = {
        "amount": 1,
        "hash": b"x",
        "shown": json.dumps(other.destination_shown),
        "body": canonical_json(other.payload),
    }
    with psycopg.connect(paying) as conn:
        conn.execute("SET ROLE redrive_producer")
        if changed is None:
            assert conn.execute(SUBMIT, values).fetchone() == ("new",)
            return
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="must have the amount"):
            conn.execute(SUBMIT, {**values, changed: wrong[changed]})


def test_a_relay_submits_nothing_and_a_payment_in_hand_is_untouched(paying: str, participant: str) -> None:
    with psycopg.connect(paying) as conn:
        id = payments.submit(conn, instruction(participant)).outbox_id
    answered(paying, id, None)
    with psycopg.connect(paying) as conn:
        conn.execute("SET ROLE redrive_relay")
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied"):
            payments.submit(conn, instruction(participant, 2))


@pytest.fixture
def restricted(server_dsn: str) -> Iterator[str]:
    """The name of a new login that may nothing, and no other test uses."""
    name = f"redrive_test_{secrets.token_hex(6)}"
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        connection.execute(f'CREATE ROLE "{name}" LOGIN'.encode())
        yield name
        connection.execute(f'DROP ROLE IF EXISTS "{name}"'.encode())


def logged_in(dsn: str, restricted: str, *roles: str) -> str:
    """The DSN of a login that is a member of these roles and of nothing else."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        for role in roles:
            conn.execute(f'GRANT {role} TO "{restricted}"'.encode())
    return psycopg.conninfo.make_conninfo(dsn, user=restricted)


@pytest.mark.parametrize("roles", [("redrive_operator",), ("redrive_relay",), ("redrive_operator", "redrive_relay")])
def test_by_hand_the_books_are_compared_by_members_alone_and_others_are_told_so(
    paying: str, restricted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, roles: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    rail = '[payments.rails.sepa]\nurl = "https://rail.example"\nhas_statement = true\n'
    (tmp_path / "redrive.toml").write_text(rail, encoding="utf-8")
    dsn = logged_in(paying, restricted, *roles, "redrive_viewer")
    refused = CliRunner().invoke(cli, ["--dsn", dsn, "payments", "reconcile"])
    assert (refused.exit_code, refused.stdout) == (4, "")
    said = " ".join(refused.stderr.split())
    assert "only members of redrive_payments may" in said
    assert "every 300 seconds" in said
    assert "leave it to the duty" in said


async def test_the_duty_of_a_relay_that_may_not_says_what_its_login_lacks(paying: str, restricted: str) -> None:
    rail = payments.Rail(rail_type="sepa", url="https://rail.example", has_statement=True)
    (comparing,) = payments.with_rails([rail]).duties
    async with PostgresStore(logged_in(paying, restricted, "redrive_relay")) as store:
        assert await run_if_due(store, comparing, worker=m.WORKER, events=Events())
    ((said,),) = rows(paying, "SELECT result FROM redrive.duty WHERE name = 'payments.reconcile'")
    assert said.startswith("failed: This login may not compare the books: only members of redrive_payments may.")


def test_an_upgrade_takes_back_what_an_earlier_version_granted(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("GRANT EXECUTE ON FUNCTION redrive_payments.compared_1 TO redrive_relay, redrive_operator")
        assert executable(database, "redrive_payments") != ALLOWED
        conn.execute((files("redrive.systems.payments") / "sql" / "verbs" / "zz_grants.sql").read_bytes())
    assert executable(database, "redrive_payments") == ALLOWED
