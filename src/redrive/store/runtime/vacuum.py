"""Own VACUUM of the tables that turn over, where autovacuum looks too seldom.

Every message leaves a dead row in `pending` and one in `lease`. With autovacuum's naptime of a minute these tables grow
to many times their size at thousands of messages a second, and all verbs slow down.
"""

from collections.abc import Sequence
from typing import Final, LiteralString, NamedTuple

NAPTIME_SECONDS_ENOUGH: Final = 5.0
DEAD_ROWS: Final = 5000  # as autovacuum has it for these tables
OLD_SECONDS: Final = 60.0  # a snapshot of this age keeps most of it alive
OLD_TRANSACTIONS: Final = 10_000  # the same, where this login may not see its time
IN_VAIN_SECONDS: Final = 60.0  # then it is tried no more often than this

LOOK: Final[LiteralString] = """
SELECT c.relname AS name,
       coalesce(pg_stat_get_dead_tuples(c.oid), 0) AS dead_rows,
       CASE WHEN current_setting('server_version_num')::integer >= 170000 THEN has_table_privilege(c.oid, 'MAINTAIN')
            ELSE pg_has_role(c.relowner, 'USAGE')
                 OR (SELECT pg_has_role(d.datdba, 'USAGE') FROM pg_database d WHERE d.datname = current_database())
        END AS allowed,
       CASE WHEN current_setting('autovacuum')::boolean
            THEN extract(epoch FROM current_setting('autovacuum_naptime')::interval)::float8 END AS naptime_seconds,
       coalesce(greatest(pg_stat_get_last_vacuum_time(c.oid), pg_stat_get_last_autovacuum_time(c.oid))
                > clock_timestamp() - make_interval(secs => %s), false)
       AND EXISTS (SELECT 1 FROM pg_stat_activity a
                    WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.backend_xmin IS NOT NULL
                      AND (a.xact_start < clock_timestamp() - make_interval(secs => %s)
                           OR a.xact_start IS NULL AND age(a.backend_xmin) >= %s)) AS in_vain
  FROM pg_class c
 WHERE c.oid IN ('redrive.pending'::regclass, 'redrive.lease'::regclass, 'redrive.lane_wake'::regclass)
 ORDER BY c.relname
"""
VACUUM: Final[LiteralString] = "VACUUM (SKIP_LOCKED, INDEX_CLEANUP ON, TRUNCATE OFF, PARALLEL 0) redrive.{}"


class Look(NamedTuple):
    """naptime_seconds: None = autovacuum is off. in_vain: it was tried just now, beside an old snapshot."""

    name: str
    dead_rows: int
    allowed: bool
    naptime_seconds: float | None
    in_vain: bool


class Choice(NamedTuple):
    """words: the result of the duty."""

    tables: Sequence[str]
    words: str


def choose(looks: Sequence[Look]) -> Choice:
    naptime = looks[0].naptime_seconds
    if naptime is not None and naptime <= NAPTIME_SECONDS_ENOUGH:
        return Choice((), f"left to autovacuum, which looks every {naptime:g} s")
    if not all(look.allowed for look in looks):
        return Choice((), "not allowed: this login may not vacuum (how-to/run-in-production)")
    tables = [look.name for look in looks if look.dead_rows >= DEAD_ROWS and not look.in_vain]
    return Choice(tables, f"vacuumed {', '.join(tables)}" if tables else "nothing to do")
