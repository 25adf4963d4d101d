"""How the statements inside the verbs are planned: once a session, by index, never compiled (G-05)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import psycopg
import pytest

from tests.support import bulk
from tests.support.databases import fresh_database

pytestmark = pytest.mark.req("G-05")

Connection = psycopg.Connection[Any]
SETTINGS: Final = frozenset({"enable_seqscan=off", "jit=off", "plan_cache_mode=force_generic_plan"})
FEW_ROWS = "its tables have a row for each relay, destination, duty or range: a handful"
# Function: the settings that it may do without, and why.
WITHOUT: Final = {
    "allowed_now": (SETTINGS, "reads no table"),
    "are_headers": (SETTINGS, "reads no table"),
    "audit": (SETTINGS, "the newest row, by the primary key; also called by pause and resume"),
    "begin_duty_1": (SETTINGS, FEW_ROWS),
    "begin_epoch": (SETTINGS, "once an epoch; what it walks is in put_in_doubt, which has them"),
    "check_addresses": (SETTINGS, "once when a relay starts, and it walks tables only where an address has changed"),
    "book_key_1": (SETTINGS, "one row, by its primary key"),
    "clock_jumped_1": (SETTINGS, FEW_ROWS),
    "close_breaker_1": (SETTINGS, FEW_ROWS),
    "close_key_1": (SETTINGS, "one row, by its primary key"),
    "database_id_1": (SETTINGS, FEW_ROWS),
    "declare_restored_1": (SETTINGS, "once a restore, by a person"),
    "deregister_1": (SETTINGS, FEW_ROWS),
    "doubt_epochs": (SETTINGS, "once an epoch; what it walks is in put_in_doubt, which has them"),
    "doubted_since": (SETTINGS, FEW_ROWS),
    "end_duty_1": (SETTINGS, FEW_ROWS),
    "enqueue_1": (SETTINGS, "reads the owners of destinations, which are few; the rest is in enqueue_internal"),
    "enqueue_internal": (SETTINGS, "inserts rows and reads none; what a duplicate reads is in holder_of"),
    "deregister_worker_1": (SETTINGS, FEW_ROWS),
    "epoch_changed": (SETTINGS, FEW_ROWS),
    "fold_failures_1": (frozenset({"enable_seqscan=off"}), "empties a table that has no index"),
    "forget_limit_keys": (SETTINGS, "once in a while; reads all keys, which are those that were held back lately"),
    "forget_relays_1": (SETTINGS, FEW_ROWS),
    "gauges_1": (
        SETTINGS - {"jit=off"},
        "once a scrape, by one reader; what it walks is in oldest_due and oldest_parked",
    ),
    "heartbeat_1": (SETTINGS, FEW_ROWS),
    "heartbeat_worker_1": (SETTINGS, FEW_ROWS),
    "hold_duty_1": (SETTINGS, FEW_ROWS),
    "invoking_role": (SETTINGS, "reads no table"),
    "is_paused": (SETTINGS, FEW_ROWS),
    "leases_1": (SETTINGS - {"jit=off"}, "reads all leases, and there are few: no index is kept for it"),
    "limit_rows": (SETTINGS, "makes policies of row-level security, and reads no table"),
    "make_partition": (SETTINGS, "makes tables, and reads none"),
    "make_partitions_1": (SETTINGS, FEW_ROWS),
    "may_approve": (SETTINGS, "reads no table"),
    "moves_money": (SETTINGS, FEW_ROWS),
    "note_comparison": (SETTINGS, FEW_ROWS),
    "oldest_snapshot_age": (SETTINGS - {"jit=off"}, "reads the server's own lists, not our tables"),
    "open_breaker_1": (SETTINGS, FEW_ROWS),
    "open_key_1": (SETTINGS, "one row, by its primary key"),
    "owner_of": (SETTINGS, FEW_ROWS),
    "pause_1": (SETTINGS, FEW_ROWS),
    "pause_key_1": (SETTINGS, "one row, by its primary key"),
    "pause_until_1": (SETTINGS, FEW_ROWS),
    "present_epoch": (SETTINGS, "asks the server about itself, and reads no table"),
    "ranges_1": (SETTINGS, FEW_ROWS),
    "reap_1": (SETTINGS - {"jit=off"}, "reads all leases, and there are few: no index is kept for it"),
    "rows_in_default_1": (SETTINGS, "once a look of `redrive doctor`; reads tables that are empty, up to a bound"),
    "refuse_change": (SETTINGS, "a trigger that raises, and reads nothing"),
    "refuse_message": (SETTINGS, "says what is wrong with its arguments, and reads nothing"),
    "refuse_owned": (SETTINGS, "says what is wrong with its argument"),
    "register_1": (SETTINGS, FEW_ROWS),
    "resume_1": (SETTINGS, FEW_ROWS),
    "resume_destination": (SETTINGS, FEW_ROWS),
    "rest_key_1": (SETTINGS, "one row, by its primary key"),
    "ring": (SETTINGS - {"enable_seqscan=off"}, "a row for each relay that sleeps, by its only index"),
    "retire_1": (SETTINGS, "once a range; its three probes are ranges of primary keys"),
    "set_back": (SETTINGS, FEW_ROWS),
    "second_person": (SETTINGS, "proposals of a day, by their primary key"),
    "systems_in_use_1": (SETTINGS, FEW_ROWS),
    "token_of": (SETTINGS, "computes from its arguments, and reads nothing"),
    "watch_epoch": (SETTINGS, FEW_ROWS),
}
_FUNCTIONS = """
SELECT p.proname, p.proconfig, p.prosrc FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
 WHERE p.pronamespace = 'redrive'::regnamespace AND l.lanname = 'plpgsql'
"""

_GRANTED = """
SELECT p.proname FROM pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
 WHERE p.pronamespace = 'redrive'::regnamespace AND a.grantee <> p.proowner
"""
_TABLE: Final = re.compile(
    r"\b(?:FROM|JOIN|INTO|UPDATE)\s+(?:pending|lease|lane|lane_wake|message|attempt|parked|destination)\b"
)


def _lacking(functions: dict[str, tuple[frozenset[str], str]], name: str) -> frozenset[str]:
    """Settings that do not hold in it: neither its own, nor those of all who call it."""
    own, _ = functions[name]
    callers = [caller for caller, (_, body) in functions.items() if f"redrive.{name}(" in body and caller != name]
    if name.rpartition("_")[2].isdigit() or not callers:
        return SETTINGS - own
    return frozenset[str]().union(*(_lacking(functions, caller) for caller in callers)) - own


def test_whatever_a_verb_calls_finds_its_names_in_our_schema(database: str) -> None:
    """Only verbs say where to look: each setting takes a call longer. What they call is never called by others."""
    with psycopg.connect(database) as connection:
        rows = connection.execute(_FUNCTIONS).fetchall()
        granted = connection.execute(_GRANTED).fetchall()
    unqualified = {name for name, _, body in rows if _TABLE.search(body)}
    with_path = {
        name for name, config, _ in rows if any(one.startswith("search_path=redrive, pg_temp") for one in config or ())
    }
    called = {
        name for name, _, _ in rows if any(f"redrive.{name}(" in body for other, _, body in rows if other != name)
    }
    assert unqualified - with_path <= called
    assert not (unqualified - with_path) & {name for (name,) in granted}


def test_whatever_a_verb_reads_is_planned_once_by_index_and_never_compiled(database: str) -> None:
    """A plan that was made while the tables were tiny is kept while they grow; making one costs more than a verb."""
    with psycopg.connect(database) as connection:
        rows = connection.execute(_FUNCTIONS).fetchall()
    functions = {name: (frozenset(config or ()), body) for name, config, body in rows}
    found = {name: lacking for name in functions if (lacking := _lacking(functions, name))}
    assert found == {name: lacking for name, (lacking, _) in WITHOUT.items()}


# Verb: a call of it for `size` claims (or rooms), and words of the statement that it runs.
_CLAIM = """
SELECT count(*) FROM redrive.claim_1(
    %(worker)s, array_fill('mail'::text, ARRAY[%(size)s]), array_fill(1::smallint, ARRAY[%(size)s]),
    array_fill(1, ARRAY[%(size)s]), 60)
"""
_DELIVER = """
SELECT count(*) FROM redrive.settle_delivered_1(
    %(worker)s, %(ids)s, array_fill(1, ARRAY[%(size)s]), array_fill(5, ARRAY[%(size)s]), NULL, '{rules}')
"""
_SETTLE = """
SELECT count(*) FROM redrive.settle_1(
    %(worker)s, 'settle', %(ids)s, array_fill(1, ARRAY[%(size)s]), array_fill('close'::text, ARRAY[%(size)s]),
    array_fill('delivered'::text, ARRAY[%(size)s]), array_fill('delivered'::text, ARRAY[%(size)s]), NULL, NULL, NULL,
    NULL, NULL, array_fill(1, ARRAY[%(size)s]), NULL, NULL, array_fill('none'::text, ARRAY[%(size)s]), NULL, NULL,
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
"""
_RENEW = "SELECT count(*) FROM redrive.renew_1(%(worker)s, %(ids)s, array_fill(1, ARRAY[%(size)s]), 60)"
BATCHES: Final = {
    "claim_1": (_CLAIM, "SELECT array_agg(due.place)"),
    "settle_delivered_1": (
        _DELIVER,
        "unnest(p_ids, p_attempts, p_latencies, p_references, p_policy_versions, p_hand_over)",
    ),
    "settle_1": (_SETTLE, "unnest(p_ids, p_attempts, v_settlements, v_closed"),
    "renew_1": (_RENEW, "UPDATE lease x SET until"),
}


@pytest.fixture(scope="module")
def leases(server_dsn: str, template: str) -> Iterator[str]:
    """A database with 2,000 leases, and as many messages that wait."""
    with fresh_database(server_dsn, template=template) as dsn:
        with psycopg.connect(dsn, autocommit=True) as connection:
            bulk.leased(connection, 2000, destination="leased")
            bulk.pending(connection, 2000)
            connection.execute("ANALYZE")
        yield dsn


@pytest.mark.parametrize("verb", BATCHES)
def test_the_first_plan_of_a_verb_is_kept_for_batches_of_every_size(leases: str, verb: str) -> None:
    """A plan for one call alone is thrown away after it; a kept one is found in the session's memory, by its text."""
    call, words = BATCHES[verb]
    kept = b"SELECT count(*) FROM pg_backend_memory_contexts WHERE name = 'CachedPlan' AND ident LIKE %s"
    with psycopg.connect(leases, autocommit=True, prepare_threshold=None) as connection:
        ids = [row[0] for row in connection.execute("SELECT id FROM redrive.lease ORDER BY id").fetchall()]
        for size in range(1, 21):
            with connection.transaction(force_rollback=True):
                connection.execute(call.encode(), {"worker": bulk.WORKER, "size": size, "ids": ids[:size]})
            plans = connection.execute(kept, [f"%{words}%"]).fetchone()
            assert plans == (1,), f"after {size} calls"
