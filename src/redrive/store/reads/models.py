"""The read models, and the limits of the reads. Those of the status are in `status`."""

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Generic, NamedTuple, Self, TypeVar
from uuid import UUID

from redrive.message import HistoryEntry, MessageId, ParkReason

LIMIT_MAX: Final = 1000  # rows of one page
SEARCH_WINDOW: Final = 100_000  # rows that one search looks at
KEYS_WINDOW: Final = 10_000  # ordering keys that one look walks over
COUNTED_MAX: Final = 200_000  # rows of pending, lease and parked each that a report counts
GROUP_WAITING_MAX: Final = 100_000  # parked messages of a failure group are counted up to this
WAITING_MAX: Final = 1000  # messages behind the head of a listed key are counted up to this
TIMELINE_MAX: Final = 200  # latest attempts and acts that are shown of one message
DESTINATIONS_MAX: Final = 1000
RELAYS_MAX: Final = 1000
DUTIES_MAX: Final = 1000
REPLAYS_SHOWN_MAX: Final = 20  # of those that need a person
CLOCK_JUMPS_MAX: Final = 10
LIVE_SECONDS: Final = 30.0  # a relay that was not seen for longer counts as stale; six default heartbeats
READ_SECONDS_MAX: Final = 10.0  # a read that takes longer is broken off

Row = TypeVar("Row")
Position = TypeVar("Position")


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFilter:
    """None = any. before: the id of the last row already seen."""

    state: str | None = None
    destination: str | None = None
    tenant: str | None = None
    kind: str | None = None
    key: str | None = None
    before: MessageId | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageView:
    """state: pending, leased, parked, or how it was closed. detail: the reason where it is parked, the relay where it
    is leased, why it waits where it is pending. body_bytes: None in lists, and where the reader may not read payloads.
    """

    id: MessageId
    tenant: str
    destination: str
    kind: str
    key: str | None
    state: str
    detail: str | None
    stage: str
    version: int
    priority: str
    attempt: int
    spent: int
    due_at: datetime | None
    created_at: datetime
    expires_at: datetime | None
    content_type: str
    body_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedRecord:
    """A message that waits for a person (G-15, G-27).

    workflow: how far a person has got with a dead one: open, triaged, remediated, validated or ignored. note: the last
    reason. edited: its payload was changed. escalated: a replay ended in the same error class.
    """

    id: MessageId
    reason: ParkReason
    tenant: str
    destination: str
    kind: str
    key: str | None
    error_class: str
    stage: str
    attempt: int
    spent: int
    crashes: int
    exhausted: bool
    in_doubt_since: datetime | None
    first_failed_at: datetime
    last_failed_at: datetime
    parked_at: datetime
    text: str | None
    stack: str | None
    context: Mapping[str, Any]
    kept_answer: Mapping[str, Any] | None
    version: int
    workflow: str
    cause: str | None
    ticket: str | None
    evidence: str | None
    owner: str | None
    note: str | None
    edited: bool
    escalated: bool
    failure_group: str | None
    row_version: int


class ParkedPosition(NamedTuple):
    parked_at: datetime
    id: MessageId


@dataclass(frozen=True, slots=True)
class Page(Generic[Row, Position]):
    """at: the database's clock, to show ages by. next: where the next page begins, None at the end.

    looked_at: how many rows a bounded search looked at, where it ended before the rows did; else None.
    """

    rows: Sequence[Row]
    at: datetime
    next: Position | None = None
    looked_at: int | None = None

    @classmethod
    def of(cls, rows: Sequence[Row], at: datetime, *, limit: int, position: Callable[[Row], Position]) -> Self:
        """A full page has another one behind its last row."""
        return cls(rows, at, position(rows[-1]) if len(rows) == limit else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedFilter:
    """None = any. before: the position of the last row already seen."""

    reason: ParkReason
    destination: str | None = None
    tenant: str | None = None
    kind: str | None = None
    error_class: str | None = None
    failure_group: bytes | None = None
    before: ParkedPosition | None = None
    limit: int = 50


class KeyGroup(StrEnum):
    """Ordering keys by what has to happen before they go on, the most urgent first.

    halted: a person has to act. waiting: a time has to come, or the destination to open. flowing: nothing.
    """

    HALTED = "halted"
    WAITING = "waiting"
    FLOWING = "flowing"


KEY_STATES: Final[Mapping[KeyGroup, Sequence[str]]] = {
    KeyGroup.HALTED: ("dead", "held", "unrecorded"),
    KeyGroup.WAITING: ("retrying", "not_due", "paused", "breaker_open", "suspect"),
    KeyGroup.FLOWING: ("ready", "in_flight"),
}
BLOCKED: Final = (*KEY_STATES[KeyGroup.HALTED], *KEY_STATES[KeyGroup.WAITING])


class KeyPosition(NamedTuple):
    group: KeyGroup
    lane: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFilter:
    """None = any. destination: the head's. after: the position of the last one seen."""

    tenant: str | None = None
    destination: str | None = None
    blocked: bool = False
    after: KeyPosition | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyView:
    """An ordering key that has something open, and its head: the message that has to go first.

    state: of the head, one of `KEY_STATES`. since: from when on. due_at: when it goes, where it waits for a time.
    waiting: how many are behind it; in lists counted up to `WAITING_MAX`. blocked: it does not go on by itself at once.
    """

    lane: int
    tenant: str
    order_by: str
    sequence: int
    state: str
    destination: str
    since: datetime
    due_at: datetime | None
    head: MessageId
    waiting: int
    blocked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """What is sent, in the present version. text: the body where it is UTF-8, byte for byte; else base64 has it."""

    content_type: str
    headers: Mapping[str, str]
    text: str | None
    base64: str | None

    @classmethod
    def of(cls, *, content_type: str, headers: Mapping[str, str] | None, body: bytes) -> Self:
        try:
            text, encoded = body.decode(), None
        except UnicodeDecodeError:
            text, encoded = None, base64.b64encode(body).decode()
        return cls(content_type=content_type, headers=headers or {}, text=text, base64=encoded)

    @property
    def body(self) -> bytes:
        return self.text.encode() if self.text is not None else base64.b64decode(self.base64 or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class LateAnswer:
    """An outcome that was refused, because its claim had been lost."""

    at: datetime
    attempt: int
    worker: UUID
    settlement: str
    answer: str | None
    code: str | None
    reference: str | None


@dataclass(frozen=True, slots=True)
class Proof:
    """What says that a message was delivered. kind: late_answer, statement, … counts: it is evidence, by which the
    message is held; else a late answer that changed nothing.
    """

    kind: str
    subject: str
    reference: str | None
    at: datetime
    counts: bool = True

    def __str__(self) -> str:
        told = f", reference {self.reference}" if self.reference else ""
        return f"{self.kind.replace('_', ' ')} of {self.subject}{told}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalView:
    """An act that one person has asked for where money moves; a second one has to ask for the same."""

    act: str
    asked_by: str
    asked_at: datetime
    reason: str
    options: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedEdit:
    """paths: the places that differ from the present payload."""

    asked_by: str
    asked_at: datetime
    reason: str
    content_type: str
    body: bytes
    paths: Sequence[str]

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.body).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One act of an operator. subject: a message id or the name of a destination."""

    id: int
    at: datetime
    actor: str
    act: str
    subject: str
    reason: str
    before: Any
    after: Any


class ChainLink(NamedTuple):
    """previous_hash, hash: what its row says. computed: what `hash` should be."""

    id: int
    previous_hash: bytes
    hash: bytes
    computed: bytes


class GroupStatus(StrEnum):
    """Where a failure group stands. regressed: it was resolved, and failed again since."""

    OPEN = "open"
    REGRESSED = "regressed"
    SNOOZED = "snoozed"
    RESOLVED = "resolved"
    IGNORED = "ignored"


class GroupPosition(NamedTuple):
    last_seen_at: datetime
    fingerprint: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFilter:
    """None = any. prefix: of the fingerprint, in hexadecimal."""

    statuses: Sequence[GroupStatus] | None = None
    destination: str | None = None
    prefix: str | None = None
    before: GroupPosition | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """Failures of one cause. seen: how many there were, ever. waiting: how many are parked now, up to a limit.

    id: the fingerprint in hexadecimal; any unique beginning of it names the group.
    """

    id: str
    destination: str
    kind: str
    error_class: str
    sample_text: str | None
    seen: int
    first_seen_at: datetime
    last_seen_at: datetime
    status: GroupStatus
    owner: str | None
    note: str | None
    snoozed_until: datetime | None
    resolved_at: datetime | None
    waiting: int

    @property
    def fingerprint(self) -> bytes:
        return bytes.fromhex(self.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestView:
    """What was asked about a parked message. answer: None while no relay has answered."""

    id: int
    message_id: MessageId
    asked_at: datetime
    asked_by: str
    answered_at: datetime | None
    answer: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayView:
    """A replay and how far it is. status: waiting, running, paused, stopped, cancelled or done.

    messages: all of them; waiting, under_way, delivered, failed, skipped: what became of them. same_class: those that
    failed as before. verified: those that a person has seen arrive.
    """

    id: UUID
    name: str
    status: str
    stop_reason: str | None
    filter: Mapping[str, Any]
    stage: str | None
    out_of_order: bool
    override: bool
    rate_per_second: float
    canary: int
    failure_ratio_max: float
    created_at: datetime
    created_by: str
    reason: str
    approved_by: str | None
    finished_at: datetime | None
    messages: int
    waiting: int
    under_way: int
    delivered: int
    failed: int
    same_class: int
    skipped: int
    verified: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayItem:
    """One message of a replay. outcome: waiting, requeued (under way), skipped, or where it got to. detail: why."""

    position: int
    message_id: MessageId
    outcome: str
    detail: str | None
    error_class: str
    requeued_at: datetime | None
    finished_at: datetime | None
    verified_at: datetime | None
    verified_by: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationView:
    """One destination as an operator sees it. paused_until: None = until an operator resumes it.

    breaker: closed, open, half_open or ramping; breaker_probe: the message that was let through last.
    concurrency_limit, rate_per_second: over all relays; None = no limit.
    """

    name: str
    paused: bool
    pause_reason: str | None
    paused_by: str | None
    paused_at: datetime | None
    paused_until: datetime | None
    breaker: str
    breaker_changed_at: datetime | None
    breaker_until: datetime | None
    breaker_opened_at: datetime | None
    breaker_trips: int
    breaker_code: str | None
    breaker_probe: MessageId | None
    concurrency_limit: int | None
    rate_per_second: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageDetails:
    """acts: None where the reader may not read the audit. behind: the head of its ordering key, while another has to go
    first.

    worker, relay, claimed_at, leased_until: while it is leased. token: of the last attempt, or of the next; None = its
    id. evidence: what says that it was delivered; by that it is held. proposals: what waits for a second person.
    payload: None unless asked for.
    """

    view: MessageView
    order_by: str | None
    sequence: int | None
    in_doubt_since: datetime | None
    crashes: int
    lookups: int
    cancel_requested: bool
    policy_version: str | None
    worker: UUID | None
    relay: str | None
    claimed_at: datetime | None
    leased_until: datetime | None
    token: UUID | None
    timeline: Sequence[HistoryEntry]
    late_answers: Sequence[LateAnswer]
    evidence: Sequence[Proof]
    proposals: Sequence[ProposalView]
    acts: Sequence[AuditEntry] | None
    behind: KeyView | None = None
    parked: ParkedRecord | None = None
    payload: Payload | None = None
