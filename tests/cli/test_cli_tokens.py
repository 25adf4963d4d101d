"""`redrive tokens`: made once, listed without their secret, revoked with a reason."""

from __future__ import annotations

import hashlib

import psycopg
import pytest

from tests.cli.conftest import NOBODY, Redrive


@pytest.mark.req("G-21")
def test_a_token_is_printed_once_and_kept_as_a_hash(redrive: Redrive) -> None:
    result = redrive("tokens", "create", "anna", "--role", "operator", "--tenant", "acme", "--reason", "on call")
    assert result.exit_code == 0, result.stderr
    secret = result.stdout.strip()
    listed = redrive.json("tokens", "list")["items"]
    assert [(one["name"], one["role"], one["tenant"], one["revoked_at"]) for one in listed] == [
        ("anna", "operator", "acme", None)
    ]
    assert secret not in str(listed)
    with psycopg.connect(redrive.dsn) as connection:
        kept = connection.execute("SELECT t::text, t.secret_hash FROM redrive.access_token t").fetchone()
    assert kept is not None
    assert secret not in kept[0]
    assert kept[1] == hashlib.sha256(secret.encode()).digest()


@pytest.mark.req("G-21")
def test_a_token_is_revoked_once_and_both_acts_are_audited(redrive: Redrive) -> None:
    made = redrive.json("tokens", "create", "bot", "--role", "viewer", "--days", 7, "--reason", "dashboard")
    assert made["secret"].startswith("rdt_")
    revoked = [redrive.json("tokens", "revoke", made["id"], "--reason", "leaked")["revoked_now"] for _ in range(2)]
    assert revoked == [True, False]
    acts = redrive.json("audit", "list")["items"]
    assert [(one["act"], one["subject"]) for one in acts] == [
        ("revoke_token", f"token {made['id']}"),
        ("create_token", f"token {made['id']}"),
    ]
    assert redrive("audit", "verify").exit_code == 0


def test_a_token_that_is_not_there_cannot_be_revoked(redrive: Redrive) -> None:
    assert redrive("tokens", "revoke", NOBODY, "--reason", "x").exit_code == 3


@pytest.mark.parametrize(
    "wrong", [["--role", "root"], ["--role", "viewer", "--days", "0"], ["--role", "viewer", "--tenant", ""]]
)
def test_a_token_has_a_role_a_tenant_and_an_end(redrive: Redrive, wrong: list[str]) -> None:
    assert redrive("tokens", "create", "x", "--reason", "x", *wrong).exit_code == 2


def test_without_tokens_the_list_says_how_to_make_one(redrive: Redrive) -> None:
    assert "redrive tokens create" in redrive("tokens", "list").stderr
