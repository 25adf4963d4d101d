"""A migrator behind PgBouncer: refused where it could lose its lock, served where it cannot."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from redrive.errors import SchemaError
from redrive.store.migrate import check, upgrade
from tests.conftest import CrashServer
from tests.support.migration_sets import ADVISORY_LOCKS, Files, value
from tests.support.scratch import scratch
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.req("G-22"), pytest.mark.full]


@pytest.fixture
def tcp_database(crash_server: CrashServer) -> str:
    """A server that a pooler can reach whoever it runs as: its socket belongs to whoever runs the tests."""
    return crash_server(port=0).dsn


@contextmanager
def pgbouncer(dsn: str, pool_mode: str) -> Iterator[str]:
    """The DSN of a pooler in front of that database."""
    program = shutil.which("pgbouncer") or pytest.skip("pgbouncer is not installed")
    server = conninfo_to_dict(dsn)
    target = " ".join(f"{key}={server[key]}" for key in ("host", "port", "user", "password") if server.get(key))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with scratch() as directory:
        settings = directory / "pgbouncer.ini"
        settings.write_text(
            f"[databases]\n* = {target}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n"
            f"auth_type = any\nunix_socket_dir =\npool_mode = {pool_mode}\n"
        )
        user = ["-u", "nobody"] if os.geteuid() == 0 else []
        with subprocess.Popen([program, "-q", *user, str(settings)], stderr=subprocess.DEVNULL) as process:
            through = f"postgresql://anyone@127.0.0.1:{port}/{server['dbname']}"
            try:
                wait_until(lambda: answers(through), seconds=20, what="the pooler's first answer")
                yield through
            finally:
                process.terminate()


def answers(dsn: str) -> bool:
    try:
        return bool(value(dsn, "SELECT 1"))
    except psycopg.OperationalError:
        return False


def test_a_pooler_that_lends_by_transaction_is_refused_and_no_lock_stays(tcp_database: str, files: Files) -> None:
    files.table("001_pre_a.sql", "CREATE TABLE a ()")
    with pgbouncer(tcp_database, "transaction") as through:
        with pytest.raises(SchemaError, match=r"lends server sessions by transaction\. Next: .* session mode"):
            upgrade(through, sets=[files.as_set()])
        assert value(tcp_database, f"SELECT count(*) FROM ({ADVISORY_LOCKS}) AS held") == 0
    assert check(tcp_database, sets=[files.as_set()]).state == "absent"


def test_a_pooler_that_lends_by_session_will_do(tcp_database: str, files: Files) -> None:
    files.table("001_pre_a.sql", "CREATE TABLE a ()")
    with pgbouncer(tcp_database, "session") as through:
        assert len(upgrade(through, sets=[files.as_set()]).applied) == 1
        assert upgrade(through, sets=[files.as_set()]).already_current
