"""`redrive db`: upgrade, check, sql."""

from __future__ import annotations

import psycopg
import pytest

from tests.cli.conftest import NOWHERE, Redrive


@pytest.fixture
def empty(empty_database: str) -> Redrive:
    """The command line on a database without the schema."""
    return Redrive(empty_database)


@pytest.mark.req("G-22")
def test_upgrade_brings_an_empty_database_to_current_and_can_be_repeated(empty: Redrive) -> None:
    first = empty.json("db", "upgrade")
    assert not first["already_current"]
    assert "redrive/tables/001_pre_engine.sql" in [step["name"] for step in first["applied"]]
    assert empty.json("db", "upgrade") == {"schema": "redrive.db.upgrade/v1", "already_current": True, "applied": []}
    assert empty.json("db", "check")["state"] == "current"


def test_upgrade_tells_its_progress_beside_the_data(empty: Redrive) -> None:
    result = empty("db", "upgrade")
    assert result.exit_code == 0
    assert result.stdout.endswith("files; the schema is current.\n")
    assert "001_pre_engine.sql" in result.stderr


def test_check_finds_an_absent_schema_and_ends_with_six(empty: Redrive) -> None:
    document = empty.json("db", "check", exit_code=6)
    assert list(document) == ["schema", "usable", "state", "pending", "detail", "next"]
    assert (document["schema"], document["usable"], document["state"]) == ("redrive.db.check/v1", False, "absent")
    assert "redrive db upgrade" in empty("db", "check").stderr


def test_check_of_a_current_schema_ends_with_zero(redrive: Redrive) -> None:
    result = redrive("db", "check")
    assert (result.exit_code, result.stdout) == (0, "current: The schema is current.\n")


def test_sql_prints_a_script_that_makes_the_schema_and_needs_no_database(empty: Redrive) -> None:
    script = empty("db", "sql", dsn=NOWHERE).stdout
    with psycopg.connect(empty.dsn, autocommit=True) as connection:
        connection.execute(script.encode())
    assert empty.json("db", "check")["state"] == "current"


@pytest.mark.parametrize("verb", ["upgrade", "check"])
def test_an_unreachable_database_ends_with_seven(nowhere: Redrive, verb: str) -> None:
    result = nowhere("db", verb)
    assert (result.exit_code, result.stdout) == (7, "")
    assert "geheim" not in result.output


def test_a_login_that_may_not_create_the_schema_is_refused(empty: Redrive, restricted: str) -> None:
    result = empty("db", "upgrade", dsn=psycopg.conninfo.make_conninfo(empty.dsn, user=restricted))
    assert result.exit_code == 5
    assert "has no CREATE privilege" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["upgrade", "--phase", "middle"],
        ["upgrade", "--lock-timeout-seconds", "0"],
        ["upgrade", "--lock-timeout-seconds", "3601"],
        ["upgrade", "--wait-seconds", "-1"],
        ["sql", "--above", "-1"],
        ["check", "now"],
        ["downgrade"],
    ],
    ids=" ".join,
)
def test_wrong_usage_ends_with_two_and_changes_nothing(empty: Redrive, arguments: list[str]) -> None:
    result = empty("db", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert empty.json("db", "check", exit_code=6)["state"] == "absent"


@pytest.mark.req("P-10")
def test_restored_pauses_what_moves_money_and_a_dry_run_changes_nothing(redrive: Redrive, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("INSERT INTO redrive.destination (name, money) VALUES ('bank', true), ('mail', false)")
        would = redrive.json("db", "restored", "--dry-run", "--reason", "a drill")
        assert would["destinations"] == [{"destination": "bank", "pending": 0, "dead": 0, "paused_before": False}]
        assert conn.execute("SELECT count(*) FROM redrive.epoch").fetchone() == (0,)
        assert redrive.json("db", "restored", "--reason", "the backup of noon")["dry_run"] is False
        rows = conn.execute("SELECT name, pause_reason FROM redrive.destination ORDER BY name").fetchall()
    assert rows == [("bank", "epoch"), ("mail", None)]
