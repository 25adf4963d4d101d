"""Dead rows of the tables that turn over: cleared away by the relays where autovacuum looks too seldom (DESIGN §6)."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from redrive.store.runtime import vacuum
from redrive.store.runtime.postgres import PostgresStore
from redrive.store.runtime.vacuum import DEAD_ROWS, NAPTIME_SECONDS_ENOUGH, Look
from tests.support import bulk

pytestmark = pytest.mark.req("G-05")

TURN_OVER = ("pending", "lease", "lane_wake")
SELDOM = 2 * NAPTIME_SECONDS_ENOUGH


@pytest.fixture
def worn(database: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Thousands of messages have left `pending`, and autovacuum is too slow, whatever this server's naptime is."""
    monkeypatch.setattr(vacuum, "NAPTIME_SECONDS_ENOUGH", 0)
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("ALTER TABLE redrive.pending SET (autovacuum_enabled = false)")
        wear(conn)
    return database


def wear(conn: psycopg.Connection[Any]) -> None:
    bulk.pending(conn, DEAD_ROWS)
    conn.execute("DELETE FROM redrive.pending")
    conn.execute("SELECT pg_stat_force_next_flush()")
    conn.execute("SELECT 1")


async def looks(store: PostgresStore, *, in_vain_seconds: float = 0, old_seconds: float = 0) -> dict[str, Look]:
    rows = await store.rows(vacuum.LOOK, [in_vain_seconds, old_seconds, vacuum.OLD_TRANSACTIONS])
    return {row[0]: Look(*row) for row in rows}


async def test_autovacuum_counts_dead_rows_of_the_tables_that_turn_over_and_does_not_rest(store: PostgresStore) -> None:
    """By default it would wait until a fifth of the rows is dead, and rest every few pages."""
    rows = await store.rows(
        "SELECT c.relname, o.option_name, o.option_value FROM pg_class c, pg_options_to_table(c.reloptions) o"
        " WHERE c.oid = ANY (%s::regclass[])",
        [[f"redrive.{table}" for table in TURN_OVER]],
    )
    asked = {table: {name: value for of, name, value in rows if of == table} for table in TURN_OVER}
    wanted = {
        "autovacuum_vacuum_scale_factor": "0",
        "autovacuum_vacuum_threshold": str(DEAD_ROWS),
        "autovacuum_vacuum_insert_threshold": "-1",
        "autovacuum_vacuum_cost_delay": "0",
        "vacuum_truncate": "false",
    }
    assert asked == dict.fromkeys(TURN_OVER, wanted)


async def test_rows_that_are_counted_up_have_room_beside_them(store: PostgresStore) -> None:
    """So that the new version of a row stays on its page, in no index, and is cleared away without a vacuum."""
    rows = await store.rows(
        "SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'redrive'::regnamespace"
        " AND 'fillfactor=50' = ANY (c.reloptions)",
        [],
    )
    assert {row[0] for row in rows} >= {"stream", "allowance", "destination", "relay", "duty"}


async def test_dead_rows_are_cleared_away(worn: str, store: PostgresStore) -> None:
    assert (await looks(store))["pending"].dead_rows >= DEAD_ROWS
    assert await store.vacuum() == "vacuumed pending"
    # The server may be analysing a table at that moment, with a snapshot that keeps them: then the next one does it.
    for _ in range(300):
        if (await looks(store))["pending"].dead_rows == 0:
            break
        await asyncio.sleep(0.1)
        await store.vacuum()
    assert (await looks(store))["pending"].dead_rows == 0
    assert await store.vacuum() == "nothing to do"


async def test_beside_an_old_snapshot_it_is_not_tried_again_and_again(worn: str, store: PostgresStore) -> None:
    with psycopg.connect(worn) as holder:
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT count(*) FROM redrive.pending")
        with psycopg.connect(worn, autocommit=True) as conn:
            wear(conn)
        await store.vacuum()
        left = (await looks(store, in_vain_seconds=3600))["pending"]
        assert left.dead_rows >= DEAD_ROWS
        assert left.in_vain
        assert not (await looks(store, in_vain_seconds=3600, old_seconds=3600))["pending"].in_vain
        assert not (await looks(store, in_vain_seconds=0))["pending"].in_vain


async def test_a_relay_without_the_permission_says_so_and_does_not_fail(worn: str, server_version: int) -> None:
    """From PostgreSQL 17 on, the role of a relay has it."""
    async with PostgresStore(make_conninfo(worn, options="-c role=redrive_relay"), connections=1) as store:
        said = await store.vacuum()
    assert said.startswith("vacuumed" if server_version >= 17 else "not allowed: ")


def look(name: str = "pending", **changes: Any) -> Look:
    plain = {"dead_rows": DEAD_ROWS, "allowed": True, "naptime_seconds": SELDOM, "in_vain": False}
    return Look(name, **{**plain, **changes})


@pytest.mark.parametrize(
    ("given", "tables", "words"),
    [
        ([look(), look("lease")], ["pending", "lease"], "vacuumed pending, lease"),
        ([look(), look("lease", dead_rows=DEAD_ROWS - 1)], ["pending"], "vacuumed pending"),
        ([look(in_vain=True)], [], "nothing to do"),
        ([look(naptime_seconds=None)], ["pending"], "vacuumed pending"),
        ([look(naptime_seconds=NAPTIME_SECONDS_ENOUGH)], [], "left to autovacuum, which looks every 5 s"),
        ([look(), look("lease", allowed=False)], [], "not allowed"),
    ],
)
def test_only_what_needs_it_and_may_be_done_is_done(given: list[Look], tables: list[str], words: str) -> None:
    choice = vacuum.choose(given)
    assert list(choice.tables) == tables
    assert choice.words.startswith(words)
