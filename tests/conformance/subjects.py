"""The two stores that the conformance suite holds to the same promises, with the same reading aids.

A `Subject` is a `redrive.ports.Store` that can also enqueue and show where its messages are.
`PostgresSubject` reads the tables over a connection of its own; `ModelSubject` has most of it from
`ModelStore`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import fields
from datetime import datetime
from typing import Any, LiteralString, NamedTuple, Protocol

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from redrive.errors import KeyReused
from redrive.message import Closed, HistoryEntry, MessageId, NewMessage, Receipt
from redrive.ports import Store, TransientFailure
from redrive.produce.protocol import prepare
from redrive.store.runtime.postgres import PostgresStore
from tests.model_store.model import ModelStore
from tests.model_store.tables import Conservation, LateAnswer
from tests.model_store.transitions import Lane, Lease, Parked, Pending, Place


class Subject(Store, Protocol):
    """A store under test."""

    @property
    def late_answers(self) -> Sequence[LateAnswer]: ...

    @property
    def server_started_at(self) -> datetime: ...

    async def half_open(self, destination: str, *, actor: str, reason: str, now: datetime | None = None) -> str:
        """Not of the port: only people call it."""
        ...

    def clock(self) -> datetime:
        """The store's own time, which it uses where no `now` is given."""
        ...

    def enqueue(self, message: NewMessage, *, now: datetime | None = None) -> Receipt: ...

    def state_of(self, id: MessageId) -> str | None: ...

    def place_of(self, id: MessageId) -> Place | None: ...

    def places(self) -> Mapping[MessageId, Place]: ...

    def conservation(self) -> Conservation: ...

    def open_transaction(self) -> AbstractContextManager[None]:
        """A transaction of somebody else that stays open meanwhile."""
        ...

    def drop_row(self, id: MessageId) -> None:
        """As if an administrator had dropped the partition that the message is in."""
        ...

    def transient_error(self) -> Exception:
        """What this store's `record` raises when trying again can mend it."""
        ...


class ModelSubject(ModelStore):
    def clock(self) -> datetime:
        return self.time

    @contextmanager
    def open_transaction(self) -> Iterator[None]:
        self.oldest_transaction_at = self.time
        yield
        self.oldest_transaction_at = None

    def drop_row(self, id: MessageId) -> None:
        del self._messages[id]

    def transient_error(self) -> Exception:
        return TransientFailure("deadlock")


class Seen(NamedTuple):
    """What is visible at one look."""

    places: Mapping[MessageId, Place]
    conservation: Conservation
    late_answers: Sequence[LateAnswer]
    archive: Mapping[MessageId, Sequence[HistoryEntry]]


class PostgresSubject(PostgresStore):
    """reader: a connection in autocommit mode, apart from the pool."""

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn, connections=3)
        self._dsn = dsn
        self._reader = psycopg.connect(dsn, autocommit=True, options="-c timezone=UTC")

    def close_reader(self) -> None:
        self._reader.close()

    @property
    def late_answers(self) -> Sequence[LateAnswer]:
        return self.look().late_answers

    @property
    def server_started_at(self) -> datetime:
        return self._moment("SELECT redrive.server_ready_at()")

    def clock(self) -> datetime:
        return self._moment("SELECT clock_timestamp()")

    def _moment(self, query: LiteralString) -> datetime:
        row = self._reader.execute(query).fetchone()
        assert row is not None
        moment = row[0]
        assert isinstance(moment, datetime)
        return moment

    def enqueue(self, message: NewMessage, *, now: datetime | None = None) -> Receipt:
        asked = prepare(message)
        row = self._reader.execute(_ENQUEUE, [*asked[:-1], now]).fetchone()
        assert row is not None
        result, id, sequence, state = row
        if result == "conflict" and not asked.first_wins:
            raise KeyReused("conflict")
        return Receipt(id, result != "new", sequence, state)

    def state_of(self, id: MessageId) -> str | None:
        row = self._reader.execute("SELECT redrive.state_of(%s)", [id]).fetchone()
        assert row is not None
        return None if row[0] is None else str(row[0])

    def place_of(self, id: MessageId) -> Place | None:
        return self.places().get(id)

    def places(self) -> Mapping[MessageId, Place]:
        return self.look().places

    def conservation(self) -> Conservation:
        return self.look().conservation

    def look(self) -> Seen:
        """All that a reader can see, in one round trip."""
        with self._reader.pipeline(), ExitStack() as stack:
            cursors = [stack.enter_context(self._reader.cursor(row_factory=dict_row)).execute(q) for q in _LOOKS]
            rows = [cursor.fetchall() for cursor in cursors]
        pending, leases, parked, counts, late, attempts = rows
        return Seen(
            {
                **{row["id"]: Pending(**_laned(row)) for row in pending},
                **{row["id"]: Lease(**_laned(row)) for row in leases},
                **{row["id"]: Parked(**_laned(row)) for row in parked},
                **{row["message_id"]: Closed(row["closed"]) for row in attempts if row["closed"]},
            },
            Conservation(**counts[0]),
            [LateAnswer(**row) for row in late],
            _by_message(attempts),
        )

    def sleeping_lanes(self, now: datetime) -> list[Lane]:
        """Lanes whose head may go, now or later, and which no token names in time. There must be none."""
        return [(row[0], row[1]) for row in self._reader.execute(_SLEEPING, [now]).fetchall()]

    @contextmanager
    def open_transaction(self) -> Iterator[None]:
        with psycopg.connect(self._dsn) as other:
            other.execute("SELECT 1")
            yield

    def drop_row(self, id: MessageId) -> None:
        with self._reader.transaction():
            self._reader.execute("SET LOCAL session_replication_role = replica")
            self._reader.execute("DELETE FROM redrive.message WHERE id = %s", [id])

    def transient_error(self) -> Exception:
        return psycopg.errors.DeadlockDetected("deadlock")

    def forget_everything(self) -> None:
        """An empty database again, for the next example. The append-only triggers are not for a replica."""
        with self._reader.transaction():
            self._reader.execute("SET LOCAL session_replication_role = replica")
            for table in _TABLES:
                self._reader.execute(sql.SQL("DELETE FROM redrive.{}").format(sql.Identifier(table)))


_TABLES = (
    "limit_key",
    "limit_key_rate",
    "pending",
    "lease",
    "parked",
    "lane_wake",
    "lane",
    "stream",
    "late_answer",
    "evidence",
    "proposal",
    "attempt",
    "message",
    "idempotency",
    "destination",
    "allowance",
    "clock_jump",
    "relay",
    "duty",
    "operator_action",
)
_SLEEPING = """
    SELECT s.tenant, s.order_by
      FROM redrive.free_heads(ARRAY(SELECT p.lane FROM redrive.pending p WHERE p.lane IS NOT NULL)) h
      JOIN redrive.stream s ON s.id = h.lane
     WHERE NOT h.suspect
       AND NOT EXISTS (SELECT 1 FROM redrive.lane_wake w
                        WHERE w.lane = h.lane AND w.destination = h.destination AND w.level = h.level
                          AND w.due_at <= greatest(h.due_at, %s))
"""
_ENQUEUE = """
    SELECT result, id, sequence, state
      FROM redrive.enqueue_1(%s, %s, %s, %s, %s, %s, %s::json, %s, %s, %s::smallint, %s, p_token_seed => %s,
                             p_now => %s)
"""


def _select(names: Sequence[str], rest: LiteralString) -> sql.Composed:
    columns = sql.SQL(", ").join(_LANE if name == "lane" else sql.Identifier(name) for name in names)
    return sql.SQL("SELECT {} FROM ").format(columns) + sql.SQL(rest)


# By its name, since its number says nothing to the model.
_LANE = sql.SQL("(SELECT ARRAY[s.tenant, s.order_by] FROM redrive.stream s WHERE s.id = lane) AS lane")


def _laned(row: dict[str, Any]) -> dict[str, Any]:
    return row if row["lane"] is None else {**row, "lane": tuple(row["lane"])}


def _names(kind: type[Pending | Lease | Parked | HistoryEntry]) -> list[str]:
    return [f.name for f in fields(kind)]


_LOOKS = (
    _select(_names(Pending), "redrive.pending"),
    _select(_names(Lease), "redrive.lease"),
    _select(_names(Parked), "redrive.parked"),
    _select(Conservation._fields, "redrive.conservation"),
    _select(LateAnswer._fields, "redrive.late_answer ORDER BY id"),
    _select(["message_id", *_names(HistoryEntry)], "redrive.attempt ORDER BY completed_at, attempt"),
)


def _by_message(rows: Sequence[dict[str, Any]]) -> Mapping[MessageId, Sequence[HistoryEntry]]:
    found: dict[MessageId, list[HistoryEntry]] = {}
    for row in rows:
        found.setdefault(row.pop("message_id"), []).append(HistoryEntry(**row))
    return found
