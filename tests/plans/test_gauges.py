"""What the reader of the gauges touches: a bounded number of rows of the small tables, nothing of the archive."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.rows import dict_row

from redrive.store.reads.transaction import statement as sql_of
from tests.support import bulk
from tests.support.databases import fresh_database
from tests.support.touched import touched

MOST = 1000


@pytest.mark.req("G-20")
def test_gauges_touch_a_bounded_number_of_rows_and_nothing_of_the_archive(server_dsn: str, template: str) -> None:
    with fresh_database(server_dsn, template=template) as dsn, psycopg.connect(dsn, autocommit=True) as connection:
        bulk.pending(connection, 5000)
        bulk.closed(connection, 5000)
        connection.execute("VACUUM ANALYZE")
        with touched(connection) as seen:
            rows = connection.execute("SELECT name, subject, value FROM redrive.gauges_1(30, %s)", [MOST]).fetchall()
        values = {(name, subject): value for name, subject, value in rows}
        assert (values["messages_pending", "mail"], values["capped", ""]) == (MOST, 1)
        assert values["oldest_pending_age_seconds", "mail"] >= 60
        assert not seen.wrote
        assert seen.of("message", seen.pages) == seen.of("attempt", seen.pages) == 0
        assert seen.scanned.get("pending", 0) <= 2 * MOST + 2
        assert seen.of("pending", seen.entries) <= 10


@pytest.mark.req("G-20")
def test_a_report_counts_a_bounded_number_of_rows_and_still_finds_the_oldest(server_dsn: str, template: str) -> None:
    with fresh_database(server_dsn, template=template) as dsn, psycopg.connect(dsn, autocommit=True) as connection:
        bulk.pending(connection, 5000)
        bulk.pending(connection, 10, destination="fax", due_in_seconds=-3600)
        connection.execute("VACUUM ANALYZE")
        now = connection.execute("SELECT clock_timestamp()").fetchone()[0]  # type: ignore[index]  # one row
        values = {"now": now, "live_seconds": 30, "most": MOST, "limit": 1000}
        with touched(connection) as seen, connection.cursor(row_factory=dict_row) as cursor:
            rows = cursor.execute(sql_of("backlog"), values).fetchall()
        assert {row["destination"]: (row["pending"], row["capped"]) for row in rows} == {"mail": (MOST, True)}
        assert rows[0]["oldest_due_seconds"] >= 60
        assert seen.scanned.get("pending", 0) <= 2 * MOST + 2
        values["most"] = 100_000
        rows = connection.cursor(row_factory=dict_row).execute(sql_of("backlog"), values).fetchall()
        assert [(row["destination"], row["pending"], row["capped"]) for row in rows] == [
            ("fax", 10, False),
            ("mail", 5000, False),
        ]
