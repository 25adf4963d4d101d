"""Moves a legacy `payment_outbox` in place: all rows with their ids and numbers, then it is dropped (P-09).

`adopt` refuses while a row is unexplained. The id is kept because the rail knows the payment by it: what the old
dispatcher had tried is asked for before it is sent. SQL: `sql/verbs/adopt.sql`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final, Literal, NamedTuple
from uuid import UUID

from psycopg import sql

from redrive.errors import ActRefused, InvalidValue, NotFound
from redrive.kit.database import Connection, Row
from redrive.kit.statements import canonical_json
from redrive.systems.payments.names import AMOUNT_HEADER
from redrive.systems.payments.validation import Instruction, Payment, PaymentRefused, checked

Meaning = Literal["waiting", "doubtful", "paid", "failed"]
MEANINGS: Final[Mapping[Meaning, str]] = {
    "waiting": "pending",
    "doubtful": "doubtful",
    "paid": "delivered",
    "failed": "dead",
}
# What is in hand is in none of them: first the old dispatcher must be gone, then the operator maps it to `doubtful`.
WORDS: Final[Mapping[str, Meaning]] = {
    "PENDING": "waiting",
    "NEW": "waiting",
    "QUEUED": "waiting",
    "RETRYABLE": "waiting",
    "DISPATCHED": "paid",
    "SENT": "paid",
    "DELIVERED": "paid",
    "COMPLETED": "paid",
    "FAILED": "failed",
    "DEAD": "failed",
}
REQUIRED: Final = (
    "outbox_id",
    "instruction_id",
    "participant_id",
    "sequence_id",
    "idempotency_key",
    "rail_type",
    "payload",
    "status",
)
GIVEN: Final = [one.name for one in fields(Instruction) if one.name != "tenant"]
OPTIONAL: Final = {"attempt_count": "0", "rail_reference": "NULL::text", "created_at": "now()"}
ACTOR: Final = "payments adopt"
SHOWN_MAX: Final = 20


class Explained(NamedTuple):
    row: Row
    meaning: Meaning
    payment: Payment


class Unexplained(NamedTuple):
    outbox_id: str
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What became, or would become, of a legacy table."""

    table: str
    explained: Sequence[Explained]
    unexplained: Sequence[Unexplained]
    dropped: bool = False

    @property
    def counts(self) -> dict[str, int]:
        found = Counter(one.meaning for one in self.explained)
        return {meaning: found.get(meaning, 0) for meaning in MEANINGS}


def plan(conn: Connection, table: str, *, tenant: str, words: Mapping[str, Meaning]) -> Plan:
    """The table is locked, so that no row is added while it is moved."""
    name = _existing(conn, table)
    conn.execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(name))
    rows = conn.execute(_selecting(conn, name, table)).fetchall()
    known = {**WORDS, **words}
    found = [_explain(row, tenant=tenant, words=known) for row in rows]
    explained = [one for one in found if isinstance(one, Explained)]
    wrong = [one for one in found if isinstance(one, Unexplained)]
    return Plan(table, explained, [*wrong, *_gaps(rows), *_paid_twice(explained), *_known(conn, explained, tenant)])


def adopt(conn: Connection, table: str, *, tenant: str, words: Mapping[str, Meaning]) -> Plan:
    """Refused while a row is unexplained."""
    found = plan(conn, table, tenant=tenant, words=words)
    if found.unexplained:
        first = found.unexplained[0]
        raise ActRefused(
            f"Unexplained rows of {table}: {len(found.unexplained)}; the first is {first.outbox_id}: {first.why}"
            " Nothing was changed.",
            next=f"redrive payments adopt --table {table} --dry-run",
        )
    for one in found.explained:
        _move(conn, one, tenant=tenant, table=table)
    conn.execute(sql.SQL("DROP TABLE {}").format(_existing(conn, table)))
    return replace(found, dropped=True)


def read_words(given: Sequence[str]) -> dict[str, Meaning]:
    """`DISPATCHING=doubtful` and the like."""
    found: dict[str, Meaning] = {}
    for one in given:
        word, _, meaning = one.partition("=")
        if meaning not in MEANINGS or not word:
            raise InvalidValue(f"--status is {one!r}; it must be WORD=MEANING, with one of {', '.join(MEANINGS)}.")
        found[word.upper()] = meaning  # type: ignore[assignment] # it is one of them
    return found


def _existing(conn: Connection, table: str) -> sql.Composable:
    schema, _, name = table.rpartition(".")
    found = conn.execute("SELECT to_regclass(%s)::oid AS oid", [table]).fetchone()
    if found is None or found["oid"] is None:
        raise NotFound(f"There is no table {table}.")
    return sql.Identifier(schema, name) if schema else sql.Identifier(name)


def _selecting(conn: Connection, name: sql.Composable, table: str) -> sql.Composed:
    """A column that is not there has its default."""
    query = "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped"
    there = {row["attname"] for row in conn.execute(query, [table]).fetchall()}
    missing = [column for column in REQUIRED if column not in there]
    if missing:
        raise InvalidValue(f"{table} has no column {missing[0]!r}; it must have {', '.join(REQUIRED)}.")
    columns: list[sql.Composable] = [
        *(sql.Identifier(column) for column in REQUIRED if column not in ("outbox_id", "payload")),
        sql.SQL("outbox_id::text AS outbox_id"),
        sql.SQL("payload ->> 'amount' AS amount"),
        sql.SQL("payload ->> 'currency' AS currency"),
        sql.SQL("payload -> 'destination' AS destination"),
    ]
    columns += [
        sql.Identifier(column)
        if column in there
        else sql.SQL("{} AS {}").format(sql.SQL(default), sql.Identifier(column))
        for column, default in OPTIONAL.items()
    ]
    return sql.SQL("SELECT {} FROM {} ORDER BY participant_id, sequence_id").format(sql.SQL(", ").join(columns), name)


def _explain(row: Row, *, tenant: str, words: Mapping[str, Meaning]) -> Explained | Unexplained:
    id = str(row["outbox_id"])
    meaning = words.get(str(row["status"]).upper())
    if meaning is None:
        return Unexplained(
            id, f"its status is {row['status']!r}; say what it means with --status {row['status']}=MEANING."
        )
    try:
        UUID(id)
    except ValueError:
        return Unexplained(id, "its id is no UUID, and so cannot stay the token that the rail knows it by.")
    try:
        payment = checked(Instruction(**{name: row[name] for name in GIVEN}, tenant=tenant))
    except PaymentRefused as refused:
        return Unexplained(id, str(refused))
    # What was tried once may have been paid, whatever the old dispatcher made of it.
    return Explained(row, "doubtful" if meaning == "waiting" and row["attempt_count"] else meaning, payment)


def _gaps(rows: Sequence[Row]) -> Iterator[Unexplained]:
    """A missing number may be a missing payment."""
    last: dict[str, int] = {}
    for row in rows:
        participant, number = row["participant_id"], row["sequence_id"]
        before = last.get(participant)
        if before is not None and number != before + 1:
            yield Unexplained(str(row["outbox_id"]), f"its number is {number}, after {before} of {participant!r}.")
        last[participant] = number


def _paid_twice(explained: Sequence[Explained]) -> Iterator[Unexplained]:
    """Two rows of one instruction that were, or may be, paid."""
    seen: set[str] = set()
    for one in explained:
        instruction = one.payment.instruction_id
        if instruction in seen and one.meaning != "failed":
            yield Unexplained(str(one.row["outbox_id"]), f"instruction {instruction!r} would be paid a second time.")
        if one.meaning != "failed":
            seen.add(instruction)


def _known(conn: Connection, explained: Sequence[Explained], tenant: str) -> Iterator[Unexplained]:
    """Rows whose instruction has a payment here that may have had an effect. What a rail's statement has is adopted,
    and held.
    """
    query = "SELECT redrive_payments.adoptable_1(%s, %s, %s, %s, %s::uuid) AS known"
    for one in explained:
        payment, id = one.payment, one.row["outbox_id"]
        named = (tenant, payment.instruction_id, payment.participant_id, payment.rail_type, id)
        found = conn.execute(query, named).fetchone()
        if found is not None and found["known"] == "already_submitted":
            yield Unexplained(
                str(id), f"instruction {payment.instruction_id!r} has a payment here already, which may have been made."
            )


def _move(conn: Connection, one: Explained, *, tenant: str, table: str) -> None:
    payment, row = one.payment, one.row
    values = (
        tenant,
        row["outbox_id"],
        MEANINGS[one.meaning],
        payment.instruction_id,
        payment.idempotency_key,
        payment.participant_id,
        row["sequence_id"],
        payment.rail_type,
        str(payment.amount),
        payment.currency,
        *payment.stored,
        canonical_json({AMOUNT_HEADER: payment.amount_text}).decode(),
        row["attempt_count"],
        row["rail_reference"],
        row["created_at"],
        ACTOR,
        f"was {row['status']} in {table}",
    )
    query = (
        "SELECT redrive_payments.adopt_1(%s, %s::uuid, %s, %s, %s, %s, %s::bigint, %s, %s::numeric, %s, %s, %s::json,"
        " %s, %s::json, %s::integer, %s, %s::timestamptz, %s, %s) AS answer"
    )
    found = conn.execute(query, values).fetchone()
    answer = None if found is None else found["answer"]
    if answer != "done":
        raise ActRefused(f"{row['outbox_id']} of {table} cannot be moved: {answer}. Nothing was changed.")
