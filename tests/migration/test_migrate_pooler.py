"""A migrator behind PgBouncer: refused where it could lose its lock, served where it cannot."""

from __future__ import annotations

import pytest

from redrive.errors import SchemaError
from redrive.store.migrations.migrate import check, upgrade
from tests.conftest import CrashServer
from tests.support.migration_sets import ADVISORY_LOCKS, Files, value
from tests.support.poolers import pgbouncer

pytestmark = [pytest.mark.req("G-22"), pytest.mark.full]


@pytest.fixture
def tcp_database(crash_server: CrashServer) -> str:
    """A server that a pooler can reach whoever it runs as: its socket belongs to whoever runs the tests."""
    return crash_server(port=0).dsn


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
