"""The words of a message's life: its states, what a producer hands in, what a handler is given.

`docs/glossary.md` explains each word, `docs/states.md` which verb leads from which state to which; a test keeps the
three in step.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NamedTuple, NewType, Protocol, TypedDict
from uuid import UUID

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Data = TypeVar("Data", default=Any)
else:  # a default is only known to the standard library from Python 3.13 on, and only a type checker asks for it
    from typing import TypeVar

    Data = TypeVar("Data")

MessageId = NewType("MessageId", UUID)
WorkerId = NewType("WorkerId", UUID)

FIRST_STAGE: Final = "first"
FIRST_VERSION: Final = 1
JSON_CONTENT: Final = "application/json"
BYTES_CONTENT: Final = "application/octet-stream"


def is_json(content_type: str) -> bool:
    """Also `application/cloudevents+json` and the like (RFC 6839), and with parameters."""
    media = content_type.partition(";")[0].strip().lower()
    return media == JSON_CONTENT or media.endswith("+json")


class State(StrEnum):
    """Where a message is. Every message is in exactly one of these at any snapshot (G-28)."""

    PENDING = "pending"
    LEASED = "leased"
    PARKED = "parked"
    CLOSED = "closed"


class Closed(StrEnum):
    """How a message ended. Closed is closed: nothing leads out of it."""

    DELIVERED = "delivered"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"
    DISCARDED = "discarded"


class ParkReason(StrEnum):
    """Why a message waits for a person (G-27)."""

    DEAD = "dead"
    HELD = "held"
    UNRECORDED = "unrecorded"


class Priority(StrEnum):
    """Order between messages, never inside an ordering key. A claim's room is split over the three, so none starves."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"

    @property
    def level(self) -> int:
        return _LEVELS[self]


_LEVELS: Final = {Priority.HIGH: 0, Priority.NORMAL: 1, Priority.LOW: 2}
LEVELS: Final = tuple(_LEVELS.values())

OnOtherPayload = Literal["refuse", "first_wins"]


class CancelAnswer(StrEnum):
    """The answers of `cancel`."""

    CANCELLED = "cancelled"
    IN_FLIGHT = "in_flight"
    IN_DOUBT = "in_doubt"
    PARKED = "parked"
    ALREADY_CLOSED = "already_closed"
    BUSY = "busy"


class Fence(NamedTuple):
    """One claim of one message. A worker that no longer holds this pair cannot change the message."""

    id: MessageId
    attempt: int


@dataclass(frozen=True, slots=True)
class NewMessage:
    """What a producer hands in.

    destination: 1 to 100 characters. payload: a JSON value, or bytes.
    key: idempotency key, unique for good per tenant; up to 1,000 characters; None = no deduplication.
    order_by: ordering key, up to 200 characters; None = no order. Messages of one key are sent strictly one after the
    other, whatever their destinations. Enqueueing locks the key until the transaction ends: keep that short.
    tenant: 1 to 100 characters. kind: free label such as an event type, up to 100 characters.
    token_seed: what its tokens are made of, up to 1,000 characters: enqueued again after its row was lost, the message
    has the same ones. None = they are made of its id.
    due_at: aware datetime before which it is not sent. expires_at: aware datetime after which it is not sent.
    headers: text to text, up to 50, at most 8 KiB in all.
    content_type: None = application/json, or application/octet-stream for bytes.
    on_other_payload: same key, other payload: "refuse" raises KeyReused, "first_wins" returns the first message.
    """

    destination: str
    payload: Any
    _: KW_ONLY
    key: str | None = None
    order_by: str | None = None
    token_seed: str | None = None
    tenant: str = "default"
    kind: str = ""
    due_at: datetime | None = None
    expires_at: datetime | None = None
    priority: Priority | str = Priority.NORMAL
    headers: Mapping[str, str] | None = None
    content_type: str | None = None
    on_other_payload: OnOtherPayload = "refuse"


class EnqueueOptions(TypedDict, total=False):
    """The keywords of `enqueue`; `NewMessage` explains them."""

    key: str | None
    order_by: str | None
    token_seed: str | None
    tenant: str
    kind: str
    due_at: datetime | None
    expires_at: datetime | None
    priority: Priority | str
    headers: Mapping[str, str] | None
    content_type: str | None
    on_other_payload: OnOtherPayload


@dataclass(frozen=True, slots=True)
class Receipt:
    """What `enqueue` gives back.

    already_existed: the key was known; id, sequence and state are the first message's.
    sequence: position within its ordering key, from 1, without gaps; None without one, or once its history was retired.
    state: pending, leased, parked, or how it was closed; just "closed" once its history was retired.
    """

    id: MessageId
    already_existed: bool
    sequence: int | None
    state: str


@dataclass(frozen=True, slots=True)
class Status:
    """What became of a message, as `status` and `wait` say it.

    state: pending, leased, parked, or how it was closed; just "closed" once its history was retired.
    park_reason: dead, held or unrecorded; None unless it is parked.
    attempt: claims so far. in_doubt: an attempt may have had its effect. cancel_requested: no further attempt.
    due_at: when it is next sent; None unless it is pending. closed_at: None while it is not closed.
    code: of the last attempt that ended. reference, result: what the destination said at the last attempt.
    """

    id: MessageId
    state: str
    park_reason: str | None = None
    attempt: int = 0
    in_doubt: bool = False
    cancel_requested: bool = False
    due_at: datetime | None = None
    closed_at: datetime | None = None
    code: str | None = None
    reference: str | None = None
    result: Any = None

    @property
    def is_finished(self) -> bool:
        """Nothing more happens by itself: it is closed, or waits for a person."""
        return self.state not in (State.PENDING, State.LEASED)


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One row of the archive: an attempt that ended, or an act on the message.

    verb: settle, hand_back, reap, requeue, cancel, expire, confirm, deny, repair, discard, …
    closed: how the message ended, on the one closing row of its life; else None.
    """

    attempt: int
    verb: str
    stage: str
    version: int
    settlement: str | None
    answer: str | None
    code: str | None
    text: str | None
    reference: str | None
    result: Any
    closed: str | None
    worker: UUID | None
    actor: str | None
    reason: str | None
    claimed_at: datetime | None
    completed_at: datetime
    latency_ms: int | None
    spent: int
    due_at: datetime | None


@dataclass(slots=True)
class Completion:
    """What `redrive.complete` needs, and whether it was called: then the relay does not settle."""

    attempted: bool = False
    worker: WorkerId | None = None
    rules: Any = None
    staged: bool = False
    outcome: Any = None


class Reader(Protocol):
    """See `redrive.schemas`; raises `InvalidPayload`."""

    def read(self, body: bytes, /) -> Any: ...


@dataclass(frozen=True)
class Attempt(Generic[Data]):
    """One claim of one message: what a handler is given. `Attempt[Order]` where the destination has `schema=Order`.

    number: claims over the whole life, never reset; it is the fence. spent: what this stage used of its budget.
    in_doubt: an earlier attempt may have had its effect. expired, cancel_requested: looked up, never sent.
    kept_answer: the destination has answered already; only `record` is run again.
    claimed_at: database clock. alone: the only lease of its worker, because a crash brought it back.
    probe: the one message that a destination is given whose breaker was open.
    stored_token: as the store made it; None = it is made of the id.
    token_used_since: when a claim first used it, where in doubt; else None.
    has_evidence: something says that it was delivered; it is not sent, but held with that.
    """

    id: MessageId
    number: int
    destination: str
    tenant: str
    kind: str
    key: str | None
    body: bytes
    content_type: str
    stage: str
    version: int
    spent: int
    lookups: int
    crashes: int
    alone: bool
    claimed_at: datetime
    created_at: datetime
    lease_seconds: float
    level: int = 1
    headers: Mapping[str, str] = field(default_factory=dict)
    order_by: str | None = None
    sequence: int | None = None
    in_doubt_since: datetime | None = None
    down_since: datetime | None = None
    first_failed_at: datetime | None = None
    expired: bool = False
    cancel_requested: bool = False
    kept_answer: Mapping[str, Any] | None = None
    earlier: tuple[HistoryEntry, ...] = ()
    probe: bool = False
    stored_token: UUID | None = None
    token_used_since: datetime | None = None
    has_evidence: bool = False
    completion: Completion = field(default_factory=Completion, repr=False, compare=False)
    schema: Reader | None = field(default=None, repr=False, compare=False)

    @property
    def fence(self) -> Fence:
        return Fence(self.id, self.number)

    @property
    def in_doubt(self) -> bool:
        return self.in_doubt_since is not None

    @cached_property
    def payload(self) -> Any:
        """The body as JSON, decoded once. Large whole numbers stay exact, so no faster parser is used."""
        return json.loads(self.body.decode())

    @cached_property
    def data(self) -> Data:
        """The payload as the destination's `schema` reads it; the plain payload where it has none."""
        read: Data = self.payload if self.schema is None else self.schema.read(self.body)
        return read

    def read_by(self, schema: Reader) -> None:
        """The relay says by which schema `data` is read."""
        object.__setattr__(self, "schema", schema)

    @cached_property
    def token(self) -> str:
        """What the destination deduplicates by: the same for every attempt of this version and stage."""
        return str(self.stored_token) if self.stored_token else token(self.id, self.version, self.stage)

    def history(self) -> tuple[HistoryEntry, ...]:
        """The last 50 rows of the archive before this attempt, and of older ones how each stage ended; oldest first."""
        return self.earlier

    def results(self) -> dict[str, Any]:
        """Result of each stage that this version of the message has completed, by stage name."""
        return {e.stage: e.result for e in self.earlier if e.settlement == "advance" and e.version == self.version}


def token(id: MessageId, version: int, stage: str, *, tenant: str = "", seed: str | None = None) -> str:
    """What the destination deduplicates by; `verbs/token.sql` is the same.

    With a seed: made of tenant, seed, version and stage, the same in every database. Without: of id, version and stage,
    and the id itself for the first of each.
    """
    if seed is not None:
        parts = (len(tenant.encode()), tenant, len(seed.encode()), seed, version, stage)
        hashed = hashlib.sha256(":".join(map(str, parts)).encode())
    elif version == FIRST_VERSION and stage == FIRST_STAGE:
        return str(id)
    else:
        hashed = hashlib.sha256(id.bytes + version.to_bytes(4, "big") + stage.encode())
    digest = bytearray(hashed.digest()[:16])
    # A UUID of version 8, put together by hand: the uuid module makes none before Python 3.14.
    digest[6] = digest[6] & 0x0F | 0x80
    digest[8] = digest[8] & 0x3F | 0x80
    return str(UUID(bytes=bytes(digest)))
