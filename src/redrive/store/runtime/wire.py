"""Converts rows to attempts and outcomes to arrays. No I/O.

The order of parameters is that of `verbs/settle.sql`. `redrive.complete` uses it too, on the caller's connection.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import cache
from operator import attrgetter
from typing import Any, Final, LiteralString, TypeVar
from uuid import UUID

from redrive import answers, redact
from redrive.message import Attempt, Closed, Completion, Fence, HistoryEntry, MessageId, ParkReason, WorkerId
from redrive.policy import Settlement, SettlementKind
from redrive.ports import Asked, Claimed, HandOver, Outcome, RelayInfo, Settled
from redrive.store.runtime.decoding import Undecodable

REFERENCE_MAX = 500
T = TypeVar("T")

SETTLE_DELIVERED: LiteralString = (
    "SELECT * FROM redrive.settle_delivered_1(%s, %s::uuid[], %s::integer[], %s::integer[], %s::text[], %s::text[],"
    " %s::boolean[], %s, %s, %s)"
)
SETTLE: LiteralString = (
    "SELECT id, attempt, result AS refusal FROM redrive.settle_1(%s, %s, %s::uuid[], %s::integer[],"
    " %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::integer[],"
    " %s::integer[], %s::integer[], %s::float8[], %s::text[],"
    " %s::boolean[], %s::text[], %s::text[], %s::text[], %s::boolean[], %s::boolean[], %s::text[], %s::text[],"
    " %s::text[], %s::text[], %s, %s, %s::boolean[])"
)


def columns(rows: Iterable[Sequence[Any]], width: int) -> list[str | None]:
    """The rows as one array per column."""
    return [array(column) for column in zip(*rows, strict=True)] or ["{}"] * width


def array(values: Iterable[Any]) -> str | None:
    """As PostgreSQL writes it: for a few values ten times as fast as handing the driver a list.

    An array of nothing but NULL is not sent: the SQL fills a shorter one up with NULL.
    """
    written = [_WRITTEN[type(value)](value) for value in values]
    if written.count("NULL") == len(written) > 0:
        return None
    return "{" + ",".join(written) + "}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", r"\\").replace('"', r"\"") + '"'


class _Written(dict[type, Callable[[Any], str]]):
    """How a value of each type is written; a derived type (an Enum's) like its base."""

    def __missing__(self, kind: type) -> Callable[[Any], str]:
        self[kind] = next(self[base] for base in kind.__mro__[1:] if base in self)
        return self[kind]


_WRITTEN: Final = _Written(
    {
        type(None): lambda _: "NULL",
        bool: str,
        int: int.__repr__,
        float: float.__repr__,
        str: _quoted,
        UUID: attrgetter("hex"),
        datetime: lambda moment: _quoted(moment.isoformat()),
    }
)


def objects(kind: type[T], rows: Iterable[Any]) -> list[T]:
    """Each row as an object whose fields are named like the columns."""
    return [kind(**row._asdict()) for row in rows]


def claimed(rows: Sequence[Any], lease_seconds: float, *, alone: bool) -> Claimed:
    attempts = [attempt(row, lease_seconds, alone=alone) for row in rows if row.attempt is not None]
    if len(attempts) == len(rows):
        return Claimed(attempts)
    said = [row.destination for row in rows if row.id is None]  # rows without a message: a destination, or nothing
    gone = sum(row.refusal == "gone" for row in rows)
    return Claimed(
        attempts,
        expired=len(rows) - len(attempts) - len(said) - gone,
        gone=gone,
        more=None in said,
        held_back=frozenset(said) - {None},
    )


@cache
def _attempt_fields(row_type: Any) -> Sequence[str]:
    return [_ATTEMPT_FIELDS.get(column, column) for column in row_type._fields]


_ATTEMPT_FIELDS: Final = {"attempt": "number", "token": "stored_token"}  # other columns are named like their field


def attempt(row: Any, lease_seconds: float, *, alone: bool) -> Attempt:
    """Filled by hand: making a frozen dataclass of thirty fields takes longer than sending its message."""
    made = Attempt.__new__(Attempt)
    values = made.__dict__
    values.update(zip(_attempt_fields(row.__class__), row, strict=True))
    values["headers"] = row.headers or {}
    values["earlier"] = tuple(_earlier(entry) for entry in row.earlier) if row.earlier else ()
    values["alone"] = alone
    values["lease_seconds"] = lease_seconds
    values["completion"] = Completion()
    del values["refusal"]
    return made


def asked(row: Any, hold_seconds: float) -> Asked:
    made = attempt(row, hold_seconds, alone=False)
    return Asked(made.__dict__.pop("request_id"), made)


def is_decodable(row: Any) -> bool:
    return row.attempt is None or Undecodable not in (type(row.headers), type(row.kept_answer), type(row.earlier))


def undecodable(row: Any, lease_seconds: float) -> Outcome:
    """Parks a claimed row that cannot be read; its doubt stays."""
    empty = row._make({} if isinstance(value, Undecodable) else value for value in row)
    made = attempt(empty, lease_seconds, alone=False)
    parked = Settlement(
        kind=SettlementKind.PARK,
        park_reason=ParkReason.HELD if made.in_doubt else ParkReason.DEAD,
        error_class=answers.UNDECODABLE,
        spent=made.spent,
        lookups=made.lookups,
        in_doubt=made.in_doubt,
        halts=True,
    )
    return Outcome(attempt=made, settlement=parked, text="Headers, a kept answer or the archive cannot be read.")


def _earlier(entry: dict[str, Any]) -> HistoryEntry:
    moments = {name: datetime.fromisoformat(entry[name]) if entry[name] else None for name in _MOMENTS}
    worker = UUID(entry["worker"]) if entry["worker"] else None
    return HistoryEntry(**{**entry, **moments, "worker": worker})


_MOMENTS = ("claimed_at", "completed_at", "due_at")


def declared(relay: RelayInfo, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "has_record": name in relay.records,
        "money": name in relay.money,
        "in_doubt": relay.in_doubt.get(name),
        "address": relay.addresses.get(name),
        "effects_within_seconds": relay.effects_within_seconds.get(name),
        "rate_per_second": relay.rates.get(name),
        "concurrency_limit": relay.concurrency_limits.get(name),
    }


def one_per_message(outcomes: Sequence[Outcome]) -> Iterator[Sequence[Outcome]]:
    """A statement sees the leases as they were before it, so two outcomes of one message go one after the other."""
    while outcomes:
        seen: set[MessageId] = set()
        batch: list[Outcome] = []
        rest: list[Outcome] = []
        if len({outcome.attempt.id for outcome in outcomes}) == len(outcomes):  # as good as always
            yield outcomes
            return
        for outcome in outcomes:
            (rest if outcome.attempt.id in seen else batch).append(outcome)
            seen.add(outcome.attempt.id)
        yield batch
        outcomes = rest


def is_plain_delivery(outcome: Outcome) -> bool:
    answer = outcome.settlement.answer
    return (
        outcome.settlement.closed is Closed.DELIVERED
        and isinstance(answer, answers.Delivered)
        and answer.result is None
    )


def delivered_values(
    worker: WorkerId,
    outcomes: Sequence[Outcome],
    hand_over: HandOver | None,
    now: datetime | None,
    *,
    wait: bool = True,
) -> list[Any]:
    return [
        worker,
        array(o.attempt.id for o in outcomes),
        array(o.attempt.number for o in outcomes),
        array(o.latency_ms for o in outcomes),
        array(_reference(o) for o in outcomes),
        array(_or_one([o.policy_version for o in outcomes])),
        hand_over and array(o.attempt.id in hand_over.ids for o in outcomes),
        hand_over and hand_over.lease_seconds,
        now,
        wait,
    ]


def _or_one(values: list[Any]) -> list[Any]:
    """settle_delivered takes the first value where the others are missing."""
    return values if len(set(values)) > 1 else values[:1]


def settle_calls(
    worker: WorkerId,
    outcomes: Sequence[Outcome],
    hand_over: HandOver | None,
    now: datetime | None,
    *,
    wait: bool = True,
) -> Iterator[tuple[LiteralString, list[Any]]]:
    plain: list[Outcome] = []
    others: list[Outcome] = []
    for outcome in outcomes:
        (plain if is_plain_delivery(outcome) else others).append(outcome)
    if plain:
        yield SETTLE_DELIVERED, delivered_values(worker, plain, hand_over, now, wait=wait)
    if others:
        yield SETTLE, settle_values(worker, "settle", others, now, wait=wait)


def settle_values(
    worker: WorkerId, verb: str, outcomes: Sequence[Outcome], now: datetime | None, *, wait: bool = True
) -> list[Any]:
    rows = [_settle_row(o) for o in outcomes]
    return [worker, verb, *columns(rows, 24), now, wait, array(o.suspect or None for o in outcomes)]


def _settle_row(outcome: Outcome) -> tuple[Any, ...]:
    settlement, answer = outcome.settlement, outcome.settlement.answer
    return (
        outcome.attempt.id,
        outcome.attempt.number,
        settlement.kind.value,
        settlement.closed and settlement.closed.value,
        answer and answers.label(answer),
        settlement.error_class,
        outcome.text and redact.storable(outcome.text, limit=redact.LONG_TEXT_MAX),
        _reference(outcome),
        _json(getattr(answer, "result", None)),
        outcome.latency_ms,
        settlement.spent,
        settlement.lookups,
        float(settlement.delay_seconds),  # one array holds one type: an int beside a float would fail the batch
        _doubt(outcome),
        settlement.down,
        settlement.stage,
        settlement.destination,
        settlement.park_reason and settlement.park_reason.value,
        settlement.exhausted,
        settlement.halts,
        outcome.stack,
        _json(dict(outcome.context)) if settlement.kind is SettlementKind.PARK else None,
        _json(outcome.kept_answer),
        outcome.policy_version,
    )


def _doubt(outcome: Outcome) -> str:
    """`attempt` has the doubt that was left when the answer came."""
    if not outcome.settlement.in_doubt:
        return "none"
    return "keep" if outcome.attempt.in_doubt else "now"


def _reference(outcome: Outcome) -> str | None:
    reference = getattr(outcome.settlement.answer, "reference", None)
    return None if reference is None else redact.storable(reference, limit=REFERENCE_MAX)


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value, allow_nan=False)


def is_handed_over(row: Any) -> bool:
    """The row is the next message of a lane, claimed; other rows of settle were not settled."""
    return row.refusal is None


def settled(total: int, rows: Sequence[Any], lease_seconds: float) -> Settled:
    lost: dict[str, list[Fence]] = {"refused": [], "repeated": [], "busy": []}
    handed_over: list[Attempt] = []
    for row in rows:
        if is_handed_over(row):
            handed_over.append(attempt(row, lease_seconds, alone=False))
        else:
            lost[row.refusal].append(Fence(row.id, row.attempt))
    not_settled = sum(map(len, lost.values()))
    return Settled(total - not_settled, lost["refused"], lost["repeated"], tuple(handed_over), tuple(lost["busy"]))


def settle_call(worker: WorkerId, verb: str, outcomes: Sequence[Outcome]) -> tuple[LiteralString, list[Any]]:
    """For a connection that is not ours (`redrive.complete`)."""
    return SETTLE, settle_values(worker, verb, outcomes, None)
