"""With a million archived attempts and fifty thousand dead letters: what each page costs the server.

Counted in rows that are read, not in time; the time is printed for who looks (`--soak -s`).
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest

from redrive.operate.web.principal import Role
from tests.api.conftest import House, asking, bearer
from tests.support import bulk
from tests.support.databases import fresh_database

pytestmark = [pytest.mark.soak, pytest.mark.req("G-21"), pytest.mark.timeout(600)]
CLOSED, PARKED, GROUPS = 1_000_000, 50_000, 3
ROWS_MAX = 400_000  # of small tables, over all statements of a page: what is parked is counted a few times
GROUP = "00" * 15 + "01"

_PARK = """
WITH made AS (
    INSERT INTO redrive.message (id, created_at, level, tenant, destination, kind, content_type, body)
    SELECT redrive.new_id(), now(), 1, 'default', 'erp', 'invoice', 'application/json', '\\x7b2263223a6e756c6c7d'
      FROM generate_series(1, %(count)s) n RETURNING id
)
INSERT INTO redrive.parked (id, reason, parked_at, first_failed_at, last_failed_at, tenant, destination, stage, version,
                            level, attempt, spent, lookups, crashes, error_class, exhausted, halts, context,
                            failure_group)
SELECT id, 'dead', now() - random() * interval '1 day', now(), now(), 'default', 'erp', 'first', 1, 1, 1, 1, 0, 0,
       'SCHEMA_INVALID', false, true, '{}', decode(lpad(to_hex(1 + (random() * 2)::integer), 32, '0'), 'hex')
  FROM made
"""
_GROUPS = """
INSERT INTO redrive.failure_group (fingerprint, destination, kind, error_class, sample_text, seen, first_seen_at,
                                   last_seen_at)
SELECT decode(lpad(to_hex(n), 32, '0'), 'hex'), 'erp', 'invoice', 'SCHEMA_INVALID', 'text', 1, now(), now()
  FROM generate_series(1, 3) n
"""
_READ = """
SELECT coalesce(sum(s.seq_tup_read), 0) + coalesce(sum(s.idx_tup_fetch), 0),
       coalesce(sum(s.seq_tup_read) FILTER (WHERE s.relname ~ '^(message|attempt|body)'), 0)
  FROM pg_stat_all_tables s WHERE s.schemaname = 'redrive'
"""


@pytest.fixture(scope="module")
def large(server_dsn: str, template: str) -> Iterator[House]:
    with fresh_database(server_dsn, template=template) as dsn, psycopg.connect(dsn, autocommit=True) as conn:
        for _ in range(10):
            bulk.closed(conn, CLOSED // 10, destination="erp")
        conn.execute(_PARK.encode(), {"count": PARKED})
        conn.execute(_GROUPS.encode())
        conn.execute("VACUUM ANALYZE")
        yield House(dsn)


@pytest.fixture
async def admin(large: House) -> AsyncIterator[Any]:
    headers = {**bearer(await large.token(Role.ADMIN)), "Accept": "text/html"}
    async with asking(large.app(), headers=headers) as client:
        yield client


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/messages",
        "/messages?state=delivered",
        "/messages?destination=nobody",
        "/parked/dead",
        f"/parked/dead?group={GROUP}",
        "/groups",
        f"/groups/{GROUP}",
        "/destinations/erp",
        "/keys",
        "/replays",
        "/audit",
    ],
)
async def test_a_page_reads_what_it_shows_and_never_the_archive(admin: Any, large: House, path: str) -> None:
    await admin.get(path)  # plans are made
    before = read(large)
    began = time.perf_counter()
    answer = await admin.get(path)
    took = time.perf_counter() - began
    after = read(large)
    rows, scanned = after[0] - before[0], after[1] - before[1]
    print(f"{path}: {took * 1000:.0f} ms, {rows:,} rows read")
    assert answer.status_code == 200
    assert scanned == 0, "a table of the archive was read from its beginning"
    assert rows <= ROWS_MAX


def read(house: House) -> tuple[int, int]:
    """Rows read so far, and those of them by scans of the archive. Sessions tell within a second or so."""
    house.execute("SELECT pg_stat_force_next_flush()")
    time.sleep(1.2)
    house.execute("SELECT pg_stat_clear_snapshot()")
    ((rows, scanned),) = house.execute(_READ)
    return int(rows), int(scanned)
