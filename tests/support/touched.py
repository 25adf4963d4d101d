"""What a verb touched, counted by the server inside the verb's own transaction: rows, index entries, pages.

Counters, not times and not the text of plans: a test says "claim reads 200 entries of pending_due and scans no
table", and it holds on every version, whatever the planner calls its nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg

_COUNTERS = """
SELECT c.relname, c.relkind = 'i', pg_stat_get_xact_numscans(c.oid), pg_stat_get_xact_tuples_returned(c.oid),
       pg_stat_get_xact_tuples_inserted(c.oid) + pg_stat_get_xact_tuples_updated(c.oid)
           + pg_stat_get_xact_tuples_deleted(c.oid),
       pg_stat_get_xact_blocks_fetched(c.oid)
  FROM pg_class c WHERE c.relnamespace = 'redrive'::regnamespace AND c.relkind IN ('r', 'i')
"""


@dataclass
class Touched:
    """Per table or index, only what is not zero.

    scanned: rows read by sequential scans of a table. entries: entries read from an index. scans: how often an index
    was descended, or a table scanned. written: rows inserted, updated or deleted. pages: pages looked at.
    """

    scanned: dict[str, int] = field(default_factory=dict)
    entries: dict[str, int] = field(default_factory=dict)
    scans: dict[str, int] = field(default_factory=dict)
    written: dict[str, int] = field(default_factory=dict)
    pages: dict[str, int] = field(default_factory=dict)
    wrote: bool = False

    def of(self, prefix: str, counts: Mapping[str, int]) -> int:
        """The sum over a partitioned table (or over everything that begins like that)."""
        return sum(count for name, count in counts.items() if name.startswith(prefix))


@contextmanager
def touched(connection: psycopg.Connection[Any]) -> Iterator[Touched]:
    """Everything inside the block is one transaction, which is rolled back at its end."""
    seen = Touched()
    with connection.transaction(force_rollback=True):
        # What earlier transactions did may not have been handed in yet: count from here.
        before = _counters(connection)
        yield seen
        seen.wrote = connection.execute("SELECT pg_current_xact_id_if_assigned() IS NOT NULL").fetchone() == (True,)
        for name, (is_index, *counts) in _counters(connection).items():
            _, *counts_before = before.get(name, (is_index, *[0] * len(counts)))
            scans, returned, written, pages = (a - b for a, b in zip(counts, counts_before, strict=True))
            _note(seen.entries if is_index else seen.scanned, name, returned)
            _note(seen.scans, name, scans)
            _note(seen.written, name, written)
            _note(seen.pages, name, pages)


def _counters(connection: psycopg.Connection[Any]) -> dict[str, tuple[bool, int, int, int, int]]:
    return {row[0]: row[1:] for row in connection.execute(_COUNTERS).fetchall()}


def _note(counts: dict[str, int], name: str, count: int) -> None:
    if count:
        counts[name] = count
