"""What is shown of an attempt is what it sent: an edit of the account is seen, the account itself is not (P-13)."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from redrive.message import MessageId
from redrive.operate.desk import workflow
from redrive.operate.desk.causes import Cause
from redrive.operate.web.app import create_app
from redrive.operate.web.auth_config import AuthConfig
from redrive.operate.web.principal import Role
from redrive.produce.payload import canonical_json
from redrive.store.runtime.postgres import PostgresStore
from redrive.systems import payments
from redrive.systems.payments.validation import checked
from redrive.who import Who
from tests.api.conftest import ORIGIN, House, asking, bearer
from tests.systems.payments.conftest import IBAN, Run, answered, instruction, rows
from tests.systems.payments.test_audit import story_of

pytestmark = pytest.mark.req("P-13", "P-08")

OTHER_IBAN = "NL91ABNA0417164300"
PEOPLE = (Who(actor="anna", reason="the account was wrong"), Who(actor="bea", reason="so it was"))


async def _edited(dsn: str, id: MessageId, patch: list[dict[str, Any]]) -> None:
    async with PostgresStore(dsn) as store:
        await workflow.triage(store, [id], Cause.DATA, PEOPLE[0])
        for who in PEOPLE:
            await workflow.edit(store, [id], patch, who)
            if rows(dsn, "SELECT count(*) FROM redrive.body WHERE message_id = %s", id) == [(1,)]:
                break
        for who in PEOPLE:
            if rows(dsn, "SELECT redrive.requeue_1(%s, %s, %s)", id, who.actor, who.reason) == [("done",)]:
                break


def edited(dsn: str, participant: str, patch: list[dict[str, Any]] | None = None) -> MessageId:
    """A payment that was refused, edited and sent again, to another account unless the patch says otherwise."""
    with psycopg.connect(dsn) as conn:
        id = payments.submit(conn, instruction(participant)).outbox_id
    answered(dsn, id, "terminal")
    change = patch or [{"op": "replace", "path": "/destination/iban", "value": OTHER_IBAN}]
    asyncio.run(_edited(dsn, id, change))
    return id


def test_show_lists_the_terms_of_each_version_and_audit_names_them(run: Run, paying: str, participant: str) -> None:
    answered(paying, edited(paying, participant), "delivered")
    shown = run("show", f"{participant}/1").stdout
    assert "…6199" in shown
    assert "…4300" in shown
    assert "edited by anna" in shown or "edited by bea" in shown
    (intent,) = json.loads(run("show", f"{participant}/1", "--json").stdout)["intents"]
    assert (intent["version"], intent["destination"]) == (2, {"iban": "…4300"})
    assert [(one["version"], one["destination"], one["attempts"]) for one in intent["versions"]] == [
        (1, {"iban": "…6199"}, 1),
        (2, {"iban": "…4300"}, 1),
    ]
    (told,) = [line for line in story_of(run("audit", f"{participant}/1")) if "DISPATCHED" in line]
    assert "version 2: 12.34 EUR to iban …4300, submitted as 12.34 EUR to iban …6199." in told
    events = json.loads(run("audit", f"{participant}/1", "--json").stdout)["events"]
    assert [(one["state"], one["destination"]["iban"]) for one in events if one["what"] == "attempt"] == [
        ("FAILED", "…6199"),
        ("DISPATCHED", "…4300"),
    ]


def test_the_views_have_the_terms_of_the_version_that_was_sent(paying: str, participant: str) -> None:
    id = edited(paying, participant)
    waiting = (
        "SELECT payload #>> '{destination,iban}' FROM redrive_payments.payment_outbox_pending WHERE outbox_id = %s"
    )
    assert rows(paying, waiting, id) == [("…4300",)]
    answered(paying, id, None)
    sent = (
        "SELECT state, version, payload #>> '{destination,iban}' FROM redrive_payments.payment_outbox_attempts"
        " WHERE outbox_id = %s AND state IN ('FAILED', 'EDIT', 'DISPATCHING') ORDER BY created_at"
    )
    assert rows(paying, sent, id) == [("FAILED", 1, "…6199"), ("EDIT", 2, "…4300"), ("DISPATCHING", 2, "…4300")]


async def test_the_api_and_the_console_show_the_terms_of_the_newest_version(paying: str, participant: str) -> None:
    await asyncio.to_thread(edited, paying, participant)
    app = create_app(paying, AuthConfig(origin=ORIGIN), systems={"payments": payments.system})
    async with asking(app) as client:
        headers = bearer(await House(paying).token(Role.VIEWER, "default"))
        shown = (await client.get(f"/api/v1/payments/instructions/{participant}/1", headers=headers)).json()
    (intent,) = shown["intents"]
    assert (shown["destination"], intent["destination"]) == ({"iban": "…6199"}, {"iban": "…4300"})
    assert [one["destination"]["iban"] for one in intent["versions"]] == ["…6199", "…4300"]
    with psycopg.connect(paying, row_factory=dict_row) as conn:
        query = payments.system.views["payments"].sql.read_bytes()
        (row,) = conn.execute(query, {"before": None, "search": participant, "limit": 5}).fetchall()
    assert row["destination"] == {"iban": "…4300"}


def test_the_account_is_in_no_table_of_payments_and_another_tenants_terms_are_not_seen(
    paying: str, participant: str
) -> None:
    id = edited(paying, participant)
    with psycopg.connect(paying) as conn:
        conn.execute("SET ROLE redrive_auditor")
        conn.execute("SET redrive.tenant = 'default'")
        seen = conn.execute("SELECT * FROM redrive_payments.terms WHERE outbox_id = %s", [id]).fetchall()
        assert len(seen) == 2
        assert IBAN not in str(seen)
        assert OTHER_IBAN not in str(seen)
        conn.execute("SET redrive.tenant = 'other'")
        assert conn.execute("SELECT count(*) FROM redrive_payments.terms WHERE outbox_id = %s", [id]).fetchone() == (0,)
        assert conn.execute("SELECT count(*) FROM redrive_payments.edited_terms").fetchone() == (0,)


def test_the_terms_of_an_edit_stay_what_they_were(paying: str, participant: str) -> None:
    id = edited(paying, participant)
    with psycopg.connect(paying) as conn, pytest.raises(psycopg.errors.InsufficientPrivilege, match="append-only"):
        conn.execute("UPDATE redrive_payments.edited_terms SET amount = 1 WHERE outbox_id = %s", [id])


@pytest.mark.parametrize(
    "patch",
    [
        [{"op": "remove", "path": "/destination"}],
        [{"op": "replace", "path": "/destination", "value": "nowhere"}],
        [{"op": "replace", "path": "/amount", "value": "much"}],
        [{"op": "replace", "path": "", "value": [1]}],
    ],
)
def test_a_payload_without_terms_is_told_as_such(
    run: Run, paying: str, participant: str, patch: list[dict[str, Any]]
) -> None:
    edited(paying, participant, patch)
    shown = run("show", f"{participant}/1")
    assert shown.exit_code == 0, shown.stderr
    story_of(run("audit", f"{participant}/1"))
    (intent,) = json.loads(run("show", f"{participant}/1", "--json").stdout)["intents"]
    assert None in (intent["amount"], intent["destination"])


@pytest.mark.parametrize(
    ("rail", "destination"),
    [
        ("sepa", {"iban": IBAN, "name": 'Zoë "Straße" \\ 東京 & </b>'}),
        ("ach", {"routing_number": "021000021", "account_number": "1234"}),
        ("card", {"card_token": "tok_12345678"}),
        ("wallet", {"wallet_id": "a.b@c"}),
    ],
)
def test_sql_makes_the_same_hash_and_hides_the_same_characters(
    paying: str, rail: str, destination: dict[str, str]
) -> None:
    currency = "EUR" if rail == "sepa" else "USD"
    payment = checked(instruction("p", rail_type=rail, destination=destination, currency=currency))
    query = "SELECT amount, currency, destination_hash, destination_shown FROM redrive_payments.terms_in(%s)"
    expected = (
        payment.amount,
        currency,
        hashlib.sha256(canonical_json(payment.destination)).digest(),
        payment.destination_shown,
    )
    assert rows(paying, query, canonical_json(payment.payload)) == [expected]


def test_the_terms_under_a_token_are_those_of_the_version_that_used_it(paying: str, participant: str) -> None:
    id = edited(paying, participant)
    answered(paying, id, "delivered")
    tokens = rows(
        paying, "SELECT version, token::text FROM redrive.attempt WHERE message_id = %s AND verb = 'settle'", id
    )
    query = "SELECT version, destination_shown ->> 'iban' FROM redrive_payments.terms_sent(%s, %s)"
    assert [rows(paying, query, id, token) for _, token in sorted(tokens)] == [[(1, "…6199")], [(2, "…4300")]]
    assert rows(paying, query, id, "another") == [(1, "…6199")]
    hashed = hashlib.sha256(canonical_json({"iban": OTHER_IBAN})).digest()
    assert rows(paying, "SELECT redrive_payments.destination_hash_of(%s, 2)", id) == [(hashed,)]
