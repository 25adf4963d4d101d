"""The life of a message as pure functions: where it is, and where each verb takes it.

A message is in exactly one place: `Pending`, `Lease`, `Parked`, or closed (`message.Closed`). A function
takes the place and what the verb brings, and returns a `Move`: the next place and the row that the
archive gets, if any. Which messages a verb may touch (the fence, rooms, limits, locks) is decided by its
callers, `model` and `desk`. The SQL of `store/sql/verbs` does the same; `tests/conformance` and
`tests/model` hold the two together.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, TypeVar, assert_never

from redrive import answers, redact
from redrive.errors import InvalidValue
from redrive.message import FIRST_STAGE, FIRST_VERSION, Closed, HistoryEntry, MessageId, ParkReason, WorkerId
from redrive.policy import SettlementKind
from redrive.ports import Outcome, PutOff

Lane = tuple[str, str]  # tenant and ordering key

REFERENCE_MAX: Final = 500  # characters of a destination's reference that are kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """What a message carries wherever it waits: who it is, what it has spent, what is doubted."""

    id: MessageId
    tenant: str
    destination: str
    level: int
    lane: Lane | None = None
    sequence: int | None = None
    stage: str = FIRST_STAGE
    version: int = FIRST_VERSION
    attempt: int = 0
    spent: int = 0
    lookups: int = 0
    crashes: int = 0
    expires_at: datetime | None = None
    in_doubt_since: datetime | None = None
    first_failed_at: datetime | None = None
    policy_version: str | None = None
    kept_answer: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending(Carried):
    """Waits to be claimed. suspect: a crash brought it back, so it is claimed alone. limit_key: it was put off for."""

    due_at: datetime
    down_since: datetime | None = None
    suspect: bool = False
    limit_key: str | None = None
    cancel_requested: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease(Carried):
    """In somebody's hands until a moment; (id, attempt) is the fence."""

    due_at: datetime
    down_since: datetime | None = None
    cancel_requested: bool = False
    worker: WorkerId
    claimed_at: datetime
    until: datetime
    lease_seconds: float
    alone: bool
    counted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked(Carried):
    """Waits for a person."""

    reason: ParkReason
    parked_at: datetime
    last_failed_at: datetime
    error_class: str
    exhausted: bool = False
    halts: bool = False
    last_text: str | None = None
    last_stack: str | None = None
    context: Mapping[str, Any] = field(default_factory=dict)


Place = Pending | Lease | Parked | Closed


class Move(NamedTuple):
    """to: the next place. row: what the archive gets; None where nothing ended."""

    to: Place
    row: HistoryEntry | None


def claimed(
    pending: Pending,
    worker: WorkerId,
    *,
    alone: bool,
    counted: bool,
    lease_seconds: float,
    now: datetime,
    proven: bool = False,
) -> Move:
    """To a lease; what has expired and may just end is closed instead. counted: its destination has limits."""
    if has_expired(pending, now) and may_just_end(pending) and not proven:
        return expired(pending, now)
    until = now + timedelta(seconds=lease_seconds)
    lease = _become(
        Lease,
        pending,
        attempt=pending.attempt + 1,
        worker=worker,
        claimed_at=now,
        until=until,
        lease_seconds=lease_seconds,
        alone=alone,
        counted=counted,
    )
    return Move(lease, None)


def has_expired(place: Pending | Lease, now: datetime) -> bool:
    return place.expires_at is not None and place.expires_at <= now


def may_just_end(place: Pending | Lease) -> bool:
    """In doubt it is looked up first; with an answer kept it was sent, and waits for its record."""
    return place.in_doubt_since is None and place.kept_answer is None


def expired(pending: Pending, now: datetime) -> Move:
    return Move(Closed.EXPIRED, _row(pending, "expire", now, closed=Closed.EXPIRED.value))


def settled(lease: Lease, outcome: Outcome, now: datetime, *, proven: bool = False) -> Move:
    """What the settlement says; but a cancel asked for meanwhile ends what would go on without doubt.

    proven: there is evidence that it was delivered, so that it is held unless the outcome says so too.
    """
    if proven:
        outcome = _held_instead(outcome)
    to = _settled_place(lease, outcome, now)
    if isinstance(to, Pending) and lease.cancel_requested and may_just_end(to):
        to = Closed.CANCELLED
    retried = isinstance(to, Pending) and outcome.settlement.kind is SettlementKind.RETRY
    row = _ended(
        lease,
        "settle",
        now,
        spent=outcome.settlement.spent,
        closed=to.value if isinstance(to, Closed) else None,
        due_at=_after(now, outcome) if retried else None,
        text=storable_text(outcome),
        latency_ms=outcome.latency_ms,
        result=as_json(getattr(outcome.settlement.answer, "result", None)),
        **said(outcome),
    )
    return Move(to, row)


LATE_SUCCESS: Final = "LATE_SUCCESS"


def _held_instead(outcome: Outcome) -> Outcome:
    """The outcome of a message with evidence: parked as held, in doubt, unless it was delivered or has its answer."""
    given = outcome.settlement
    if given.closed is Closed.DELIVERED or given.park_reason is ParkReason.UNRECORDED:
        return outcome
    context = outcome.context if given.kind is SettlementKind.PARK else {}
    held = replace(
        given,
        kind=SettlementKind.PARK,
        closed=None,
        park_reason=ParkReason.HELD,
        error_class=LATE_SUCCESS,
        in_doubt=True,
        halts=True,
    )
    attempt = outcome.attempt
    if not given.in_doubt and attempt.in_doubt_since is None:  # as old as the claim knows it
        attempt = replace(attempt, in_doubt_since=attempt.claimed_at)
    return replace(outcome, attempt=attempt, settlement=held, context=context)


def held_by_evidence(place: Pending | Parked, text: str, now: datetime) -> Move:
    """Pending or dead: parked as held."""
    changes: dict[str, Any] = {
        "reason": ParkReason.HELD,
        "error_class": LATE_SUCCESS,
        "halts": True,
        "exhausted": False,
        "in_doubt_since": place.in_doubt_since or now,
        "last_text": text,
        "last_stack": None,
    }
    if isinstance(place, Pending):
        first = place.first_failed_at or now
        changes |= {"parked_at": now, "first_failed_at": first, "last_failed_at": now}
    return Move(_become(Parked, place, **changes), _row(place, "hold", now, code=LATE_SUCCESS, text=text))


def _settled_place(lease: Lease, outcome: Outcome, now: datetime) -> Place:
    settlement = outcome.settlement
    match settlement.kind:
        case SettlementKind.CLOSE:
            if settlement.closed is None:
                raise InvalidValue("A settlement of kind close must say how the message ended.")
            return settlement.closed
        case SettlementKind.RETRY | SettlementKind.ADVANCE:
            return _goes_on(lease, outcome, now)
        case SettlementKind.PARK:
            return _park(lease, outcome, now)
        case SettlementKind.HAND_BACK:
            raise InvalidValue("A claim is handed back by hand_back, not by settle.")
        case _:
            assert_never(settlement.kind)


def _goes_on(lease: Lease, outcome: Outcome, now: datetime) -> Pending:
    settlement = outcome.settlement
    failed = settlement.kind is SettlementKind.RETRY
    return _become(
        Pending,
        lease,
        due_at=_after(now, outcome),
        spent=settlement.spent,
        lookups=settlement.lookups,
        suspect=lease.crashes > 0 or outcome.suspect,
        destination=settlement.destination or lease.destination,
        stage=settlement.stage or lease.stage,
        in_doubt_since=_doubt(lease, outcome, now),
        down_since=(lease.down_since or now) if settlement.down else None,
        first_failed_at=(lease.first_failed_at or now) if failed else None,
        policy_version=outcome.policy_version,
        kept_answer=None if outcome.kept_answer is None else as_json(outcome.kept_answer),
    )


def _park(lease: Lease, outcome: Outcome, now: datetime) -> Parked:
    settlement = outcome.settlement
    if settlement.park_reason is None or settlement.error_class is None:
        raise InvalidValue("A settlement of kind park must have a park reason and an error class.")
    kept = lease.kept_answer if outcome.kept_answer is None else as_json(outcome.kept_answer)
    return _become(
        Parked,
        lease,
        reason=settlement.park_reason,
        parked_at=now,
        first_failed_at=lease.first_failed_at or now,
        last_failed_at=now,
        spent=settlement.spent,
        lookups=settlement.lookups,
        error_class=settlement.error_class,
        exhausted=settlement.exhausted,
        halts=settlement.halts,
        in_doubt_since=_doubt(lease, outcome, now),
        policy_version=outcome.policy_version,
        last_text=storable_text(outcome),
        last_stack=outcome.stack,
        context=as_json(dict(outcome.context)),
        kept_answer=kept,
    )


def _doubt(lease: Lease, outcome: Outcome, now: datetime) -> datetime | None:
    """Gone, as old as it was, or new: the attempt says what was left of it when the answer came."""
    if not outcome.settlement.in_doubt:
        return None
    return (lease.in_doubt_since or now) if outcome.attempt.in_doubt else now


def _after(now: datetime, outcome: Outcome) -> datetime:
    return now + timedelta(seconds=outcome.settlement.delay_seconds)


def handed_back(
    lease: Lease, now: datetime, *, suspect: bool = False, proven: bool = False, put_off: PutOff | None = None
) -> Move:
    """As it was before the claim, unspent; a cancel asked for meanwhile ends what may just end. put_off: due later."""
    if lease.cancel_requested and may_just_end(lease) and not proven:
        row = _ended(lease, "hand_back", now, settlement="hand_back", closed=Closed.CANCELLED.value)
        return Move(Closed.CANCELLED, row)
    back = _become(Pending, lease, due_at=min(lease.due_at, now), suspect=lease.alone or suspect)
    if put_off is not None and put_off.seconds is not None:
        due_at = max(back.due_at, now + timedelta(seconds=put_off.seconds))
        back = replace(back, due_at=due_at, limit_key=put_off.key)
    return Move(back, _ended(lease, "hand_back", now, settlement="hand_back"))


GONE_TEXT: Final = "The row of the message is gone: its partition was dropped."


def gone(lease: Lease, now: datetime, *, proven: bool = False) -> Move:
    """There is nothing to send any more: it waits for a person, with its answer or the doubt that it had."""
    is_proven = proven and lease.kept_answer is None
    doubt = lease.in_doubt_since or (now if is_proven else None)
    reason = ParkReason.HELD if doubt is not None else ParkReason.DEAD
    code = LATE_SUCCESS if is_proven else answers.MESSAGE_GONE
    parked = _become(
        Parked,
        lease,
        reason=ParkReason.UNRECORDED if lease.kept_answer is not None else reason,
        parked_at=now,
        first_failed_at=lease.first_failed_at or now,
        last_failed_at=now,
        error_class=code,
        halts=True,
        in_doubt_since=doubt,
        last_text=GONE_TEXT,
    )
    return Move(parked, _ended(lease, "settle", now, settlement="park", code=code, text=GONE_TEXT))


def reaped(lease: Lease, code: str, now: datetime) -> Move:
    """Pending again, unspent, in doubt, a suspect. Only a crash while alone counts (G-18)."""
    back = _become(
        Pending,
        lease,
        due_at=now,
        crashes=lease.crashes + lease.alone,
        suspect=True,
        in_doubt_since=lease.in_doubt_since or now,
        first_failed_at=lease.first_failed_at or now,
    )
    return Move(back, _ended(lease, "reap", now, code=code))


def cancelled(
    place: Pending | Lease, *, actor: str | None, reason: str | None, now: datetime, proven: bool = False
) -> Move:
    """Closed, or marked where it is in flight, in doubt, has evidence, or waits for its record."""
    if isinstance(place, Lease):
        return Move(replace(place, cancel_requested=True), None)
    if proven or not may_just_end(place):
        return Move(replace(place, cancel_requested=True, due_at=min(place.due_at, now)), None)
    row = _row(place, "cancel", now, closed=Closed.CANCELLED.value, actor=actor, reason=reason)
    return Move(Closed.CANCELLED, row)


class Act(NamedTuple):
    """What an operator did, and why."""

    verb: str
    actor: str
    reason: str


def pended_again(
    parked: Parked,
    act: Act,
    now: datetime,
    *,
    stage: str | None = None,
    in_doubt_since: datetime | None = None,
    kept_answer: Mapping[str, Any] | None = None,
) -> Move:
    """Requeue, deny, repair, and confirm where the destination records: out of parked with a fresh budget."""
    back = _become(
        Pending,
        parked,
        due_at=now,
        stage=stage or parked.stage,
        spent=0,
        lookups=0,
        crashes=0,
        first_failed_at=None,
        in_doubt_since=in_doubt_since,
        kept_answer=kept_answer,
    )
    row = _row(back, act.verb, now, spent=parked.spent, due_at=now, actor=act.actor, reason=act.reason)
    return Move(back, row)


def closed_by(
    place: Pending | Parked, act: Act, closed: Closed, now: datetime, *, reference: str | None = None
) -> Move:
    """Confirm, discard and skip: the end, by a person."""
    row = _row(place, act.verb, now, closed=closed.value, actor=act.actor, reason=act.reason, reference=reference)
    return Move(closed, row)


def said(outcome: Outcome) -> dict[str, str | None]:
    """What was decided and what the destination said, in the archive's words."""
    answer = outcome.settlement.answer
    reference = getattr(answer, "reference", None)
    return {
        "settlement": outcome.settlement.kind.value,
        "answer": None if answer is None else answers.label(answer),
        "code": outcome.settlement.error_class,
        "reference": None if reference is None else redact.storable(reference, limit=REFERENCE_MAX),
    }


def storable_text(outcome: Outcome) -> str | None:
    return None if outcome.text is None else redact.storable(outcome.text, limit=redact.LONG_TEXT_MAX)


def as_json(value: Any) -> Any:
    """The value as a database would give it back; what is not JSON is refused before anything changes."""
    return None if value is None else json.loads(json.dumps(value, allow_nan=False))


Other = TypeVar("Other", Pending, Lease, Parked)


def _become(kind: type[Other], place: Carried, **changes: Any) -> Other:
    """The same message in another place: what both places carry stays, unless it is among the changes."""
    carried = {f.name: getattr(place, f.name) for f in fields(kind) if hasattr(place, f.name)}
    return kind(**{**carried, **changes})


def _ended(lease: Lease, verb: str, now: datetime, **values: Any) -> HistoryEntry:
    """The row of an attempt that ended."""
    return _row(lease, verb, max(lease.claimed_at, now), worker=lease.worker, claimed_at=lease.claimed_at, **values)


def _row(place: Carried, verb: str, now: datetime, **values: Any) -> HistoryEntry:
    named: dict[str, Any] = {
        **dict.fromkeys(_OPTIONAL),
        "attempt": place.attempt,
        "stage": place.stage,
        "version": place.version,
        "spent": place.spent,
        **values,
    }
    return HistoryEntry(verb=verb, completed_at=now, **named)


_OPTIONAL: Final = tuple(
    f.name
    for f in fields(HistoryEntry)
    if f.name not in {"attempt", "verb", "stage", "version", "spent", "completed_at"}
)
