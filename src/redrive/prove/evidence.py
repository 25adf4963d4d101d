"""What the checker believes: the observer's log, the producers' logs, and one snapshot of the database.

Read with plain SQL: a mistake in the engine's code cannot hide itself.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

from redrive.kit.proof import journal

Row = Mapping[str, Any]

# Rows of the archive that end a claim; every other row is an act without one.
CLAIM_ENDS = frozenset({"settle", "complete", "hand_back", "reap"})

_TABLES = {
    "messages": "SELECT id::text, tenant, key, destination, encode(sha256(body), 'hex') AS sha256, order_by, sequence"
    " FROM redrive.message",
    "counters": "SELECT tenant, order_by, last_sequence FROM redrive.stream",
    "pending": "SELECT id::text, destination, attempt, spent, due_at::text, suspect, lane, sequence"
    " FROM redrive.pending",
    "leases": "SELECT id::text, destination, attempt, worker::text FROM redrive.lease",
    "parked": "SELECT id::text, destination, reason, error_class, spent, lookups, crashes, attempt,"
    " in_doubt_since IS NOT NULL AS in_doubt, lane, sequence, halts FROM redrive.parked",
    "attempts": "SELECT message_id::text AS id, attempt, verb, destination, stage, version, settlement, answer, closed,"
    " code, reference, spent, in_doubt, worker::text, extract(epoch FROM claimed_at)::float8 AS claimed_at,"
    " extract(epoch FROM completed_at)::float8 AS completed_at FROM redrive.attempt"
    " ORDER BY message_id, completed_at, attempt",
    "late": "SELECT message_id::text AS id, attempt, worker::text, answer FROM redrive.late_answer",
    "mended": "SELECT name, mended FROM redrive.duty WHERE mended > 0",
    "keys": "SELECT tenant, encode(key_hash, 'hex') AS key_hash, message_id::text AS id FROM redrive.idempotency",
}
_OWN_TABLES = {
    "business": "SELECT tenant, key, destination, sha256 FROM redrive_prove.business",
    "recorded": "SELECT message_id::text AS id, attempt FROM redrive_prove.recorded",
    "completed": "SELECT message_id::text AS id, attempt FROM redrive_prove.completed",
}


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """observed, produced: lines of the observer and the producers, in order. The rest are tables. business,
    recorded, completed: None where the application has no such table."""

    observed: Sequence[Row] = ()
    produced: Sequence[Row] = ()
    messages: Sequence[Row] = ()
    counters: Sequence[Row] = ()
    mended: Sequence[Row] = ()
    pending: Sequence[Row] = ()
    leases: Sequence[Row] = ()
    parked: Sequence[Row] = ()
    attempts: Sequence[Row] = ()
    late: Sequence[Row] = ()
    keys: Sequence[Row] = ()
    business: Sequence[Row] | None = None
    recorded: Sequence[Row] | None = None
    completed: Sequence[Row] | None = None
    _indexes: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def of_message(self, name: str) -> Mapping[str, Sequence[Row]]:
        """Rows of one of the sequences by message id, in order."""
        if name not in self._indexes:
            found: dict[str, list[Row]] = defaultdict(list)
            for row in getattr(self, name):
                found[row["id"]].append(row)
            self._indexes[name] = dict(found)
        index: Mapping[str, Sequence[Row]] = self._indexes[name]
        return index

    def claims(self, message: str) -> Mapping[int, Row]:
        """The archive rows that ended a claim, by attempt number."""
        rows = self.of_message("attempts").get(message, ())
        return {row["attempt"]: row for row in rows if row["verb"] in CLAIM_ENDS}

    def claim(self, line: Row) -> Row | None:
        """That of the attempt which a line is about."""
        return self.claims(line["id"]).get(line["attempt"])

    def lines(self, *kinds: str) -> Iterable[Row]:
        return (line for line in self.observed if line["log"] in kinds)

    def sends(self) -> Iterable[Row]:
        return (line for line in self.lines("request") if line["call"] == "send")


def attempt_of(line: Row) -> str:
    """For a sentence."""
    return f"Attempt {line['attempt']} of message {line['id']}"


def gather(dsn: str, *, observer: Path, producers: Iterable[Path] = ()) -> Evidence:
    """The database in one snapshot."""
    tables: dict[str, Any] = {}
    with psycopg.connect(dsn, row_factory=dict_row) as conn:
        conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        for name, query in _TABLES.items():
            tables[name] = conn.execute(query).fetchall()
        own = conn.execute("SELECT to_regclass('redrive_prove.business') IS NOT NULL AS there").fetchone()
        if own and own["there"]:
            for name, query in _OWN_TABLES.items():
                tables[name] = conn.execute(query).fetchall()
    return Evidence(
        observed=[{**line, "place": place} for place, line in enumerate(journal.read(observer))],
        produced=[line for path in producers for line in journal.read(path)],
        **tables,
    )
