"""Files that run outside a transaction, and the INVALID indexes that they may leave."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from redrive.errors import SchemaError
from redrive.store.migrations.migrate import check, require_current, upgrade
from tests.support.migration_sets import Files, recorded, session, start_migrator, value
from tests.support.waiting import wait_until

pytestmark = pytest.mark.req("G-22")

INDEX_VALID = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('redrive.t_a')"
BUILDS = "SELECT count(*) FROM pg_stat_progress_create_index WHERE datname = current_database()"


@pytest.fixture
def indexing(empty_database: str, files: Files) -> Files:
    files.table("001_pre_t.sql", "CREATE TABLE t (a int); INSERT INTO t SELECT generate_series(1, 100)")
    upgrade(empty_database, sets=[files.as_set()])
    return files.table(
        "002_pre_index.sql",
        "-- redrive: no transaction\n"
        "CREATE TABLE IF NOT EXISTS redrive.v (); -- a semicolon; in a comment\n"
        "CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS t_a ON redrive.t (a);\n"
        "VACUUM redrive.t",
    )


def test_a_file_outside_a_transaction_runs_statement_by_statement(empty_database: str, indexing: Files) -> None:
    assert len(upgrade(empty_database, sets=[indexing.as_set()]).applied) == 1
    assert value(empty_database, INDEX_VALID) is True
    assert check(empty_database, sets=[indexing.as_set()]).state == "current"


def test_an_index_left_invalid_by_a_failure_is_built_again(empty_database: str, indexing: Files) -> None:
    with session(empty_database) as connection:
        connection.execute("INSERT INTO redrive.t VALUES (7)")
        with pytest.raises(
            SchemaError, match=r"002_pre_index\.sql, line 3: could not create unique index .*\(a\)=\(7\)"
        ):
            upgrade(empty_database, sets=[indexing.as_set()])
        assert value(empty_database, INDEX_VALID) is False
        assert recorded(empty_database) == [("redrive", "001")]
        connection.execute("DELETE FROM redrive.t WHERE a = 7")
    told: list[str] = []
    upgrade(empty_database, sets=[indexing.as_set()], progress=told.append)
    assert value(empty_database, INDEX_VALID) is True
    assert "redrive.t_a is INVALID, left by an interrupted run; it is dropped and built again" in told[0]


def test_an_index_left_invalid_by_a_kill_is_built_again(empty_database: str, indexing: Files) -> None:
    with psycopg.connect(empty_database) as writer:
        writer.execute("INSERT INTO redrive.t VALUES (101)")  # the build waits for this transaction
        migrator = start_migrator(empty_database, indexing)
        wait_until(lambda: value(empty_database, INDEX_VALID) is False, seconds=60, what="the index in the making")
        migrator.kill()
        migrator.communicate(timeout=60)
        wait_until(lambda: value(empty_database, BUILDS) == 0, seconds=20, what="the end of the server session")
    assert value(empty_database, INDEX_VALID) is False
    assert check(empty_database, sets=[indexing.as_set()]).state == "behind"
    upgrade(empty_database, sets=[indexing.as_set()])
    assert value(empty_database, INDEX_VALID) is True


def test_a_concurrent_build_waits_longer_than_the_lock_timeout_and_says_for_whom(
    empty_database: str, indexing: Files
) -> None:
    told: list[str] = []
    with ThreadPoolExecutor() as pool, psycopg.connect(empty_database) as writer:
        writer.execute("INSERT INTO redrive.t VALUES (101)")
        migrator = pool.submit(
            upgrade,
            empty_database,
            sets=[indexing.as_set()],
            lock_timeout_seconds=0.001,
            progress=told.append,
        )
        wait_until(lambda: bool(told), seconds=60, what="the migrator's words")
        writer.commit()
        assert len(migrator.result(60).applied) == 1
        assert told[0].startswith(f"Waiting for a lock held by pid {writer.info.backend_pid} ")


def test_a_concurrent_build_does_not_wait_for_ever(empty_database: str, indexing: Files) -> None:
    with psycopg.connect(empty_database) as writer:
        writer.execute("INSERT INTO redrive.t VALUES (101)")
        with pytest.raises(SchemaError, match=rf"in 5 attempts\. Blocked by pid {writer.info.backend_pid} "):
            upgrade(empty_database, sets=[indexing.as_set()], lock_timeout_seconds=0.1, wait_seconds=0.2)


def test_a_valid_index_of_that_name_is_kept(empty_database: str, indexing: Files) -> None:
    with session(empty_database) as connection:
        connection.execute("CREATE UNIQUE INDEX t_a ON redrive.t (a)")
    before = value(empty_database, "SELECT 'redrive.t_a'::regclass::oid")
    upgrade(empty_database, sets=[indexing.as_set()])
    assert value(empty_database, "SELECT 'redrive.t_a'::regclass::oid") == before


def test_an_applied_index_that_became_invalid_is_reported_but_stops_no_relay(
    empty_database: str, indexing: Files
) -> None:
    upgrade(empty_database, sets=[indexing.as_set()])
    with session(empty_database) as connection:
        connection.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'redrive.t_a'::regclass")
    checked = check(empty_database, sets=[indexing.as_set()])
    assert (checked.state, checked.next) == ("invalid", "REINDEX INDEX CONCURRENTLY redrive.t_a")
    assert "The index redrive.t_a is INVALID" in checked.detail
    require_current(empty_database, sets=[indexing.as_set()])
