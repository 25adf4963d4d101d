"""A migrator that is blocked lets the application pass, tries again, and says who is in the way."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from redrive.errors import SchemaError
from redrive.store.migrations import steps
from redrive.store.migrations.migrate import check, upgrade
from tests.support.migration_sets import Files, session, value
from tests.support.waiting import wait_until

pytestmark = pytest.mark.req("G-22")

WAITS_FOR_LOCK = (
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = 'redrive db'"
)


@pytest.fixture
def altering(empty_database: str, files: Files) -> Files:
    """The next file needs a lock that nobody can have beside a reader."""
    files.table("001_pre_t.sql", "CREATE TABLE t (a int); CREATE TABLE u (a int)")
    upgrade(empty_database, sets=[files.as_set()])
    return files.table("002_pre_more.sql", "ALTER TABLE redrive.t ADD COLUMN b int")


def test_a_blocked_file_gives_up_in_time_and_names_the_blocker(empty_database: str, altering: Files) -> None:
    told: list[str] = []
    with psycopg.connect(empty_database, application_name="long report") as reader:
        reader.execute("SELECT count(*) AS whole_report FROM redrive.t")
        pid = reader.info.backend_pid
        with pytest.raises(SchemaError) as refused:
            upgrade(empty_database, sets=[altering.as_set()], lock_timeout_seconds=0.2, progress=told.append)
    message = str(refused.value)
    assert message.startswith("redrive/tables/002_pre_more.sql did not get its locks in 5 attempts. Blocked by")
    assert f"pid {pid} (long report, user " in message
    assert "idle in transaction" in message
    assert "SELECT count(*) AS whole_report FROM redrive.t" in message
    assert "pg_terminate_backend(pid)" in refused.value.next
    assert [line for line in told if "(attempt 4 of 5); again in 0.8 s" in line]
    assert [line for line in told if line.startswith(f"Waiting for a lock held by pid {pid}")]
    assert check(empty_database, sets=[altering.as_set()]).state == "behind"


def test_the_pauses_between_attempts_grow(
    empty_database: str, altering: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(steps, "sleep", pauses.append)
    with psycopg.connect(empty_database) as reader:
        reader.execute("SELECT FROM redrive.t")
        with pytest.raises(SchemaError, match="in 5 attempts"):
            upgrade(empty_database, sets=[altering.as_set()], lock_timeout_seconds=0.1)
    assert pauses == pytest.approx([0.1, 0.2, 0.3, 0.4])


def test_a_file_that_was_blocked_is_applied_once_the_blocker_ends(empty_database: str, altering: Files) -> None:
    with ThreadPoolExecutor() as pool, psycopg.connect(empty_database) as reader:
        reader.execute("SELECT FROM redrive.t")
        told: list[str] = []
        migrator = pool.submit(
            upgrade, empty_database, sets=[altering.as_set()], lock_timeout_seconds=0.2, progress=told.append
        )
        wait_until(lambda: any("attempt 1 of 5" in line for line in told), seconds=60, what="the first attempt's end")
        reader.rollback()
        assert len(migrator.result(60).applied) == 1


def test_the_application_passes_between_two_attempts(empty_database: str, altering: Files) -> None:
    with ThreadPoolExecutor() as pool, psycopg.connect(empty_database) as reader:
        reader.execute("SELECT FROM redrive.t")
        migrator = pool.submit(upgrade, empty_database, sets=[altering.as_set()], lock_timeout_seconds=1)
        wait_until(lambda: bool(value(empty_database, WAITS_FOR_LOCK)), seconds=60, what="the blocked ALTER")
        # This query queues behind the ALTER, whose reader never ends: only the lock timeout sets it free.
        assert value(empty_database, "SELECT count(*) FROM redrive.t") == 0
        assert not migrator.done()
        reader.rollback()
        assert len(migrator.result(60).applied) == 1


def test_a_deadlock_is_tried_again(empty_database: str, altering: Files) -> None:
    altering.table("002_pre_more.sql", "LOCK TABLE redrive.t; LOCK TABLE redrive.u")
    told: list[str] = []
    with ThreadPoolExecutor() as pool, psycopg.connect(empty_database) as other:
        other.execute("SET deadlock_timeout = '60s'")  # so that the migrator is the one to be refused
        other.execute("LOCK TABLE redrive.u")
        migrator = pool.submit(
            upgrade, empty_database, sets=[altering.as_set()], lock_timeout_seconds=2, progress=told.append
        )
        wait_until(lambda: bool(value(empty_database, WAITS_FOR_LOCK)), seconds=60, what="the migrator at u")
        other.execute("LOCK TABLE redrive.t")
        other.rollback()
        wait_until(lambda: bool(told), seconds=60, what="the migrator's words")
        assert "deadlock detected (attempt 1 of 5)" in told[0]
        assert len(migrator.result(60).applied) == 1


def test_a_step_outside_a_transaction_has_the_lock_timeout_too(empty_database: str, altering: Files) -> None:
    altering.table("002_pre_more.sql", "-- redrive: no transaction\nALTER TABLE t ADD COLUMN IF NOT EXISTS b int")
    with psycopg.connect(empty_database) as reader:
        reader.execute("SELECT FROM redrive.t")
        with pytest.raises(SchemaError, match=rf"Blocked by pid {reader.info.backend_pid} "):
            upgrade(empty_database, sets=[altering.as_set()], lock_timeout_seconds=0.1)


def test_without_a_second_connection_the_error_says_why_nobody_is_named(
    empty_database: str, altering: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise psycopg.OperationalError("too many clients already")

    with session(empty_database) as own, psycopg.connect(empty_database) as reader:
        reader.execute("SELECT FROM redrive.t")
        monkeypatch.setattr(psycopg, "connect", refuse)
        with pytest.raises(SchemaError, match="Blocked by unknown, a second connection failed: too many clients"):
            upgrade(own, sets=[altering.as_set()], lock_timeout_seconds=0.1)
