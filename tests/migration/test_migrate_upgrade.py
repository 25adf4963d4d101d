"""One migrator, from an empty database to a current one and on."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.rows import dict_row

from redrive.errors import InvalidValue, SchemaError, UsageError
from redrive.store.migrations.migrate import check, require_current, upgrade
from tests.support.migration_sets import ADVISORY_LOCKS, Files, recorded, session, value

pytestmark = pytest.mark.req("G-22")


@pytest.fixture
def two(files: Files) -> Files:
    files.table("001_pre_log.sql", "CREATE TABLE log (entry text);\nINSERT INTO log VALUES ('100 % of 001');\n")
    files.table("002_post_more.sql", "ALTER TABLE redrive.log ADD COLUMN more int; INSERT INTO log VALUES ('002')")
    return files.function("claim", 1)


def test_a_first_run_applies_everything_and_the_second_nothing(empty_database: str, two: Files) -> None:
    assert check(empty_database, sets=[two.as_set()]).state == "absent"
    first = upgrade(empty_database, sets=[two.as_set()])
    assert [(step.name, step.phase) for step in first.applied] == [
        ("redrive/tables/001_pre_log.sql", "pre"),
        ("redrive/verbs/claim.sql", "verb"),
        ("redrive/tables/002_post_more.sql", "post"),
    ]
    assert not first.already_current
    second = upgrade(empty_database, sets=[two.as_set()])
    assert (second.applied, second.already_current) == ((), True)
    assert check(empty_database, sets=[two.as_set()]).state == "current"
    assert value(empty_database, "SELECT string_agg(entry, ',' ORDER BY entry) FROM redrive.log") == "002,100 % of 001"


def test_every_file_leaves_a_row_of_who_when_and_what(empty_database: str, two: Files) -> None:
    upgrade(empty_database, sets=[two.as_set(version="1.2.3")])
    with session(empty_database, row_factory=dict_row) as connection:
        row = connection.execute(
            "SELECT *, applied_at <= clock_timestamp() AS past, applied_by = current_user AS me"
            "  FROM redrive.schema_version WHERE number_or_file = '001'"
        ).fetchone()
    assert row is not None
    assert (row["set_name"], row["phase"], row["product_version"]) == ("redrive", "pre", "1.2.3")
    assert row["past"]
    assert row["me"]
    assert row["duration_ms"] >= 0
    assert len(row["checksum"]) == 64


def test_pre_and_post_run_apart(empty_database: str, two: Files) -> None:
    pre = upgrade(empty_database, phase="pre", sets=[two.as_set()])
    assert [step.phase for step in pre.applied] == ["pre", "verb"]
    assert check(empty_database, sets=[two.as_set()]).state == "behind_post"
    require_current(empty_database, sets=[two.as_set()])
    assert upgrade(empty_database, phase="pre", sets=[two.as_set()]).already_current
    post = upgrade(empty_database, phase="post", sets=[two.as_set()])
    assert [step.phase for step in post.applied] == ["post"]
    assert check(empty_database, sets=[two.as_set()]).state == "current"


def test_a_verb_runs_again_when_and_only_when_it_changed(empty_database: str, two: Files) -> None:
    two.function("settle", 1)
    upgrade(empty_database, sets=[two.as_set()])
    two.function("claim", 2)
    assert check(empty_database, sets=[two.as_set()]).pending == ("redrive/verbs/claim.sql",)
    again = upgrade(empty_database, sets=[two.as_set()])
    assert [step.name for step in again.applied] == ["redrive/verbs/claim.sql"]
    assert value(empty_database, "SELECT redrive.claim()") == 2
    assert check(empty_database, sets=[two.as_set()]).state == "current"


def test_a_verb_that_returns_something_else_is_refused_with_advice(empty_database: str, two: Files) -> None:
    upgrade(empty_database, sets=[two.as_set()])
    two.verb("claim.sql", "\nCREATE OR REPLACE FUNCTION redrive.claim() RETURNS text LANGUAGE sql AS 'SELECT 1'")
    with pytest.raises(SchemaError, match=r"verbs/claim\.sql.*cannot change return type.*new version number"):
        upgrade(empty_database, sets=[two.as_set()])
    assert value(empty_database, "SELECT redrive.claim()") == 1


def test_a_changed_numbered_file_is_refused_and_nothing_runs(empty_database: str, two: Files) -> None:
    upgrade(empty_database, sets=[two.as_set()])
    two.table("001_pre_log.sql", "CREATE TABLE log (entry text, other int)").function("claim", 2)
    with pytest.raises(SchemaError, match=r"redrive/tables/001_pre_log\.sql is not the file .* Next: restore 001"):
        upgrade(empty_database, sets=[two.as_set()])
    assert value(empty_database, "SELECT redrive.claim()") == 1
    with pytest.raises(SchemaError, match=r"The schema is changed"):
        require_current(empty_database, sets=[two.as_set()])


def test_an_older_program_leaves_a_newer_database_as_it_is(empty_database: str, two: Files) -> None:
    two.table("003_pre_new.sql", "CREATE TABLE redrive.new ()").function("claim", 3)
    upgrade(empty_database, sets=[two.as_set(version="2.0")])
    older = two.remove("tables/003_pre_new.sql").function("claim", 1).as_set(version="1.0")
    assert check(empty_database, sets=[older]).state == "ahead"
    require_current(empty_database, sets=[older])
    assert upgrade(empty_database, sets=[older]).already_current
    assert value(empty_database, "SELECT redrive.claim()") == 3


def test_a_failing_file_leaves_nothing_of_itself_and_all_of_those_before(empty_database: str, two: Files) -> None:
    two.table("003_pre_bad.sql", "CREATE TABLE redrive.half ();\n\nSELECT * FROM redrive.nowhere;")
    with pytest.raises(SchemaError, match=r'003_pre_bad\.sql, line 3: relation "redrive\.nowhere" does not exist'):
        upgrade(empty_database, sets=[two.as_set()])
    assert recorded(empty_database) == [("redrive", "001"), ("redrive", "002")]
    assert value(empty_database, "SELECT to_regclass('redrive.half')") is None
    two.table("003_pre_bad.sql", "CREATE TABLE redrive.half ();")
    assert len(upgrade(empty_database, sets=[two.as_set()]).applied) == 2


def test_a_file_and_its_row_are_one_transaction(empty_database: str, files: Files) -> None:
    row = "INSERT INTO schema_version VALUES ('redrive', '001', 'pre', 'x', now(), 'somebody', 0, '0')"
    files.table("001_pre_a.sql", f"CREATE TABLE a (); {row}")
    with pytest.raises(SchemaError, match=r"001_pre_a\.sql was recorded by a program without the migrator's lock"):
        upgrade(empty_database, sets=[files.as_set()])
    assert value(empty_database, "SELECT to_regclass('redrive.a')") is None
    assert recorded(empty_database) == []


def test_an_error_raised_inside_a_block_is_told_with_its_place(empty_database: str, files: Files) -> None:
    files.table("001_pre_bad.sql", "DO $$ BEGIN RAISE EXCEPTION 'not like this' USING HINT = 'like that'; END $$")
    with pytest.raises(SchemaError, match=r"001_pre_bad\.sql, PL/pgSQL.*line 1.*not like this\. Next: like that"):
        upgrade(empty_database, sets=[files.as_set()])


def test_other_sets_run_after_the_engine_with_numbers_of_their_own(empty_database: str, two: Files) -> None:
    other = Files(two.directory.parent / "other").table("001_pre_pay.sql", "INSERT INTO redrive.log VALUES ('pay')")
    sets = [other.as_set("payments"), two.as_set()]
    upgrade(empty_database, sets=sets)
    assert recorded(empty_database)[-1] == ("payments", "001")
    assert check(empty_database, sets=sets).state == "current"
    assert check(empty_database, sets=[two.as_set()]).state == "current"


def test_a_set_that_is_added_later_is_behind_and_catches_up(empty_database: str, two: Files) -> None:
    upgrade(empty_database, sets=[two.as_set()])
    other = Files(two.directory.parent / "other").table("001_pre_pay.sql", "CREATE TABLE redrive.pay ()")
    sets = [two.as_set(), other.as_set("payments")]
    assert check(empty_database, sets=sets).state == "behind"
    assert [step.name for step in upgrade(empty_database, sets=sets).applied] == ["payments/tables/001_pre_pay.sql"]


def test_require_current_names_the_command_that_helps(empty_database: str, two: Files) -> None:
    with pytest.raises(SchemaError, match=r"The schema is absent\..*Next: redrive db upgrade$"):
        require_current(empty_database, sets=[two.as_set()])


def test_an_open_connection_is_used_and_given_back_as_it_was(empty_database: str, two: Files) -> None:
    with psycopg.connect(empty_database, row_factory=dict_row, options="-c search_path=public") as connection:
        connection.execute("SET lock_timeout = '7s'; SET client_encoding = 'LATIN1'")
        connection.commit()
        assert len(upgrade(connection, sets=[two.as_set()]).applied) == 3
        assert check(connection, sets=[two.as_set()]).state == "current"
        require_current(connection, sets=[two.as_set()])
        assert connection.info.transaction_status.name == "IDLE"
        assert not connection.autocommit
        shown = [connection.execute(f"SHOW {name}").fetchone() for name in ("search_path", "lock_timeout")]
        assert shown == [{"search_path": "public"}, {"lock_timeout": "7s"}]
        assert connection.info.encoding == "iso8859-1"
        assert connection.execute(ADVISORY_LOCKS.encode()).fetchall() == []


def test_an_open_transaction_is_refused(empty_database: str, two: Files) -> None:
    with psycopg.connect(empty_database) as connection:
        connection.execute("SELECT 1")
        with pytest.raises(UsageError, match="has a transaction open"):
            upgrade(connection, sets=[two.as_set()])


def test_a_check_inside_the_callers_transaction_does_not_end_it(empty_database: str, two: Files) -> None:
    with psycopg.connect(empty_database) as connection:
        connection.execute("CREATE TABLE mine ()")
        check(connection, sets=[two.as_set()])
        connection.rollback()
        row = connection.execute("SELECT to_regclass('mine')").fetchone()
    assert row == (None,)


def test_the_settings_of_the_login_change_nothing(empty_database: str, files: Files) -> None:
    files.table("001_pre_a.sql", "CREATE TABLE word AS SELECT 'Grüße'::text AS word; SELECT pg_sleep(0.6)")
    options = "-c search_path=nowhere -c statement_timeout=500 -c client_encoding=LATIN1"
    with session(empty_database, options=options) as connection:
        upgrade(connection, sets=[files.as_set()])
    assert value(empty_database, "SELECT word FROM redrive.word") == "Grüße"


def test_progress_is_told_of_every_file(empty_database: str, two: Files) -> None:
    told: list[str] = []
    upgrade(empty_database, sets=[two.as_set()], progress=told.append)
    assert [line.split(" in ")[0] for line in told] == [
        "Applied redrive/tables/001_pre_log.sql",
        "Applied redrive/verbs/claim.sql",
        "Applied redrive/tables/002_post_more.sql",
    ]


@pytest.mark.parametrize("seconds", [0, -1, 3600.1])
def test_a_lock_timeout_outside_its_bounds_is_refused(two: Files, seconds: float) -> None:
    with pytest.raises(InvalidValue, match="above 0 and at most 3600"):
        upgrade("", sets=[two.as_set()], lock_timeout_seconds=seconds)


def test_a_negative_wait_and_an_unknown_phase_are_refused(two: Files) -> None:
    with pytest.raises(InvalidValue, match="wait_seconds is -1"):
        upgrade("", sets=[two.as_set()], wait_seconds=-1)
    with pytest.raises(InvalidValue, match="one of all, pre, post"):
        upgrade("", sets=[two.as_set()], phase="later")  # type: ignore[arg-type]
