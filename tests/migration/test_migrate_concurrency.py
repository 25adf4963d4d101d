"""Many migrators, killed migrators, and migrators without their lock."""

from __future__ import annotations

import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from redrive.errors import SchemaError
from redrive.store.migrations.lock import LOCK_KEY
from redrive.store.migrations.migrate import Upgraded, check, upgrade
from tests.support.migration_sets import ADVISORY_LOCKS, Files, recorded, session, start_migrator, value
from tests.support.waiting import wait_until

pytestmark = pytest.mark.req("G-22")

MIGRATORS = """
    SELECT count(*) FROM pg_stat_activity
     WHERE application_name = 'redrive db' AND datname = current_database()
"""
# A step that runs until the test lets go of this lock.
GATE = 4711
AT_GATE = f"SELECT pid FROM ({ADVISORY_LOCKS}) AS held WHERE key = {GATE} AND NOT granted"


@pytest.fixture
def counted(files: Files) -> Files:
    """Every file adds a line when it runs."""
    files.table("001_pre_log.sql", "CREATE TABLE log (entry text); INSERT INTO log VALUES ('001')")
    files.table("002_pre_more.sql", "INSERT INTO log VALUES ('002')")
    files.table("003_post_last.sql", "INSERT INTO log VALUES ('003')")
    return files.verb("claim.sql", "INSERT INTO log VALUES ('claim')")


@pytest.fixture
def gated(counted: Files) -> Files:
    return counted.table("002_pre_more.sql", f"INSERT INTO log VALUES ('002'); SELECT pg_advisory_xact_lock({GATE})")


def seen(dsn: str, query: str) -> Callable[[], bool]:
    return lambda: bool(value(dsn, query))


def test_eight_migrators_at_once_apply_each_file_once(empty_database: str, counted: Files) -> None:
    with session(empty_database) as first:
        first.execute("SELECT pg_advisory_lock(%s)", [LOCK_KEY])
        migrators = [start_migrator(empty_database, counted) for _ in range(8)]
        wait_until(lambda: value(empty_database, MIGRATORS) == 8, seconds=60, what="eight migrators at the lock")
    outputs = [migrator.communicate(timeout=60) for migrator in migrators]
    assert [migrator.returncode for migrator in migrators] == [0] * 8, outputs
    assert sorted(len(out.split()) for out, _ in outputs) == [0] * 7 + [4]
    entries = value(empty_database, "SELECT array_agg(entry) FROM redrive.log")
    assert entries == ["001", "002", "claim", "003"]


def test_a_killed_migrator_leaves_no_lock_and_no_half_file(empty_database: str, gated: Files) -> None:
    with session(empty_database) as gate:
        gate.execute("SELECT pg_advisory_lock(%s)", [GATE])
        migrator = start_migrator(empty_database, gated)
        wait_until(seen(empty_database, AT_GATE), seconds=60, what="the migrator inside its second file")
        migrator.send_signal(signal.SIGKILL)
        migrator.communicate(timeout=60)
        # The gate stays shut: the server session must notice by itself that nobody is there any more.
        wait_until(lambda: value(empty_database, MIGRATORS) == 0, seconds=20, what="the end of its server session")
    assert recorded(empty_database) == [("redrive", "001")]
    assert len(upgrade(empty_database, sets=[gated.as_set()]).applied) == 3
    assert value(empty_database, "SELECT array_agg(entry) FROM redrive.log") == ["001", "002", "claim", "003"]


def test_a_waiting_migrator_says_whom_it_waits_for(empty_database: str, gated: Files) -> None:
    told: list[str] = []
    with session(empty_database) as gate, ThreadPoolExecutor() as pool:
        gate.execute("SELECT pg_advisory_lock(%s)", [GATE])
        first = pool.submit(upgrade, empty_database, sets=[gated.as_set()], lock_timeout_seconds=60)
        wait_until(seen(empty_database, AT_GATE), seconds=60, what="the first migrator inside its second file")
        pid = value(empty_database, AT_GATE)
        second = pool.submit(upgrade, empty_database, sets=[gated.as_set()], progress=told.append)
        wait_until(lambda: bool(told), seconds=60, what="the second migrator's words")
        gate.execute("SELECT pg_advisory_unlock(%s)", [GATE])
        assert len(first.result(60).applied) == 4
        assert second.result(60) == Upgraded((), already_current=True)
    assert told[0].startswith(f"Waiting for another migrator since 0 s: pid {pid} (redrive db, user ")


def test_waiting_for_another_migrator_has_an_end_that_names_it(empty_database: str, counted: Files) -> None:
    with session(empty_database, application_name="slow one") as holder:
        holder.execute("SELECT pg_advisory_lock(%s)", [LOCK_KEY])
        pid = holder.info.backend_pid
        with pytest.raises(SchemaError, match=rf"all the 0\.3 s .* pid {pid} \(slow one, .*pg_terminate_backend"):
            upgrade(empty_database, sets=[counted.as_set()], wait_seconds=0.3)
    assert check(empty_database, sets=[counted.as_set()]).state == "absent"


def test_a_waiting_migrator_does_not_hold_up_an_index_built_concurrently(empty_database: str, files: Files) -> None:
    files.table("001_pre_t.sql", f"CREATE TABLE t (a int); SELECT pg_advisory_xact_lock({GATE})")
    files.table("002_pre_i.sql", "-- redrive: no transaction\nCREATE INDEX CONCURRENTLY IF NOT EXISTS i ON t (a)")
    told: list[str] = []
    with session(empty_database) as gate, ThreadPoolExecutor() as pool:
        gate.execute("SELECT pg_advisory_lock(%s)", [GATE])
        first = pool.submit(upgrade, empty_database, sets=[files.as_set()], wait_seconds=20, lock_timeout_seconds=60)
        wait_until(seen(empty_database, AT_GATE), seconds=60, what="the first migrator inside its first file")
        second = pool.submit(upgrade, empty_database, sets=[files.as_set()], progress=told.append)
        wait_until(lambda: bool(told), seconds=60, what="the second migrator at the lock")
        gate.execute("SELECT pg_advisory_unlock(%s)", [GATE])
        assert len(first.result(60).applied) == 2
        assert second.result(60).already_current


def test_a_current_database_needs_no_lock(empty_database: str, counted: Files) -> None:
    upgrade(empty_database, sets=[counted.as_set()])
    with session(empty_database) as holder:
        holder.execute("SELECT pg_advisory_lock(%s)", [LOCK_KEY])
        assert upgrade(empty_database, sets=[counted.as_set()], wait_seconds=0).already_current


def test_a_lock_that_vanishes_stops_the_migrator_before_the_next_file(empty_database: str, counted: Files) -> None:
    with session(empty_database) as connection:

        def lose_the_lock(_: str) -> None:
            connection.execute("SELECT pg_advisory_unlock_all()")

        with pytest.raises(SchemaError, match=r"lock vanished .* pooler .*session mode"):
            upgrade(connection, sets=[counted.as_set()], progress=lose_the_lock)
    assert recorded(empty_database) == [("redrive", "001")]


def test_a_lock_that_vanishes_stops_a_file_outside_a_transaction_too(empty_database: str, files: Files) -> None:
    files.table("001_pre_a.sql", "CREATE TABLE a ()")
    files.table("002_pre_b.sql", "-- redrive: no transaction\nCREATE TABLE IF NOT EXISTS b ()")
    with session(empty_database) as connection:

        def lose_the_lock(_: str) -> None:
            connection.execute("SELECT pg_advisory_unlock_all()")

        with pytest.raises(SchemaError, match="lock vanished"):
            upgrade(connection, sets=[files.as_set()], progress=lose_the_lock)
    assert value(empty_database, "SELECT to_regclass('redrive.b')") is None


def test_a_connection_that_is_lost_inside_a_file_is_told_as_such(empty_database: str, gated: Files) -> None:
    with session(empty_database) as gate, ThreadPoolExecutor() as pool:
        gate.execute("SELECT pg_advisory_lock(%s)", [GATE])
        migrator = pool.submit(upgrade, empty_database, sets=[gated.as_set()], lock_timeout_seconds=60)
        wait_until(seen(empty_database, AT_GATE), seconds=60, what="the migrator inside its second file")
        gate.execute(f"SELECT pg_terminate_backend(pid) FROM ({AT_GATE}) AS at_gate")
        with pytest.raises(
            SchemaError, match=r"connection was lost while redrive/tables/002_pre_more\.sql ran"
        ) as lost:
            migrator.result(60)
    assert isinstance(lost.value.__cause__, psycopg.Error)
    assert recorded(empty_database) == [("redrive", "001")]


def test_a_step_that_fails_lets_go_of_the_lock(empty_database: str, files: Files) -> None:
    files.table("001_pre_bad.sql", "SELECT 1/0")
    with session(empty_database) as connection:
        with pytest.raises(SchemaError, match="division by zero"):
            upgrade(connection, sets=[files.as_set()])
        assert value(empty_database, f"SELECT count(*) FROM ({ADVISORY_LOCKS}) AS held") == 0
