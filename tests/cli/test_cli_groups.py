"""`redrive groups` and `redrive audit` as a script uses them."""

from __future__ import annotations

import psycopg
import pytest

from redrive.operate.desk.causes import Cause, likely_cause
from tests.cli.conftest import Redrive, Shop

pytestmark = pytest.mark.req("G-16")


def test_the_list_shows_what_needs_somebody_and_what_is_said_of_it(shop: Shop, redrive: Redrive) -> None:
    shown = redrive.json("groups", "list")["items"]
    assert sorted((group["error_class"], group["seen"], group["waiting"]) for group in shown) == [
        ("HTTP_409", 1, 1), ("RECORD_FAILED", 1, 1), ("TIMEOUT", 1, 1),
    ]  # fmt: skip
    group = next(one["id"] for one in shown if one["error_class"] == "HTTP_409")
    assert redrive("groups", "assign", group[:12], "ada", "--reason", "mine").exit_code == 0
    assert redrive("groups", "note", group[:12], "waits for INC-7", "--reason", "so that all know").exit_code == 0
    page = redrive("groups", "show", group[:12])
    assert page.exit_code == 0
    for words in ("likely cause", "data", "ada", "waits for INC-7", str(shop["dead"])):
        assert words in page.stdout
    shown = redrive.json("groups", "show", group)
    assert (shown["group"]["owner"], shown["messages"][0]["id"]) == ("ada", str(shop["dead"]))
    assert redrive.json("groups", "resolve", group, "--reason", "erp is back")["group"]["status"] == "resolved"
    assert len(redrive.json("groups", "list")["items"]) == 2
    assert len(redrive.json("groups", "list", "--all")["items"]) == 3
    assert len(redrive.json("groups", "list", "--status", "resolved")["items"]) == 1
    assert redrive("groups", "snooze", group, "--hours", "0", "--reason", "x").exit_code == 2
    assert redrive("groups", "show", "abcd1234").exit_code == 3
    assert redrive("groups", "show", "no").exit_code == 2
    audit = redrive.json("audit", "list", "--subject", f"group {group}")["items"]
    assert [entry["act"] for entry in audit] == ["resolve", "note", "assign"]


def test_an_audit_that_was_changed_ends_with_findings(shop: Shop, redrive: Redrive) -> None:
    assert "No act is recorded" in redrive("audit", "list").stderr
    redrive("destinations", "pause", "shop", "--reason", "release")
    said = redrive.json("audit", "verify")
    assert (said["intact"], said["checked"]) == (True, 1)
    assert redrive("audit", "verify", "--head", said["head"]).exit_code == 0
    assert redrive("audit", "verify", "--head", "nonsense").exit_code == 2
    with psycopg.connect(shop.dsn) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute("UPDATE redrive.operator_action SET actor = 'eve'")
    result = redrive("audit", "verify")
    assert result.exit_code == 6
    assert "act 1 is not what was written" in result.stdout


@pytest.mark.parametrize(
    ("error_class", "cause"),
    [
        ("UNCLASSIFIED", Cause.CODE_DEFECT),
        ("CRASHED", Cause.CODE_DEFECT),
        ("HTTP_401", Cause.AUTH_CONFIG),
        ("AUTH_DENIED", Cause.AUTH_CONFIG),
        ("HTTP_429", Cause.TRANSIENT),
        ("HTTP_503", Cause.TRANSIENT),
        ("NETWORK_TIMEOUT", Cause.TRANSIENT),
        ("HTTP_422", Cause.DATA),
        ("SCHEMA_INVALID", Cause.DATA),
        ("CASE_NOT_FOUND", Cause.DATA),
        ("SOMETHING_ELSE", Cause.CODE_DEFECT),
    ],
)
def test_an_error_class_hints_at_its_cause(error_class: str, cause: Cause) -> None:
    assert likely_cause(error_class).cause is cause
