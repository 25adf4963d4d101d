"""The tables of the model store: where every message is, what was asked for, and the archive.

`ModelStore` and its desk build on it. The clock is the database's: it stands still until `advance` moves
it or `time` is set, and a verb that is given `now` uses that instead, as PostgreSQL does. Values are
frozen and shared, so a copy of the whole store is a copy of a few dictionaries. The SQL beside it:
tables/001, verbs/enqueue.sql, state.sql.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Final, NamedTuple, Self
from uuid import UUID

from redrive.errors import DestinationOwned, InvalidValue, KeyReused, NotFound
from redrive.message import Closed, HistoryEntry, MessageId, NewMessage, Receipt, WorkerId
from redrive.ports import Now
from redrive.produce.protocol import Prepared, prepare
from tests.model_store.lanes import free_heads
from tests.model_store.transitions import Lane, Lease, Move, Parked, Pending, Place

START: Final = datetime(2025, 1, 1, tzinfo=UTC)


class LateAnswer(NamedTuple):
    """An outcome that came after its claim was lost: refused, kept as evidence."""

    message_id: MessageId
    attempt: int
    worker: WorkerId
    at: datetime
    settlement: str
    answer: str | None
    code: str | None
    reference: str | None
    text: str | None


class Proof(NamedTuple):
    """Evidence that a message was delivered although its claim says otherwise."""

    kind: str
    subject: str
    reference: str | None
    at: datetime


class Proposal(NamedTuple):
    """What one person has asked to be done where money moves, and what exactly it is bound to."""

    asked_by: str
    asked_at: datetime
    binding: object


class Conservation(NamedTuple):
    """Where all messages are: enqueued = pending + leased + parked + closed (G-28)."""

    enqueued: int
    pending: int
    leased: int
    parked: int
    closed: int


class _Message(NamedTuple):
    """What was asked for, once."""

    asked: Prepared
    headers: Mapping[str, str]
    created_at: datetime
    sequence: int | None


@dataclass
class Tables:
    """time: the database's clock. random: where ids come from.

    late_answers: every outcome that was refused, oldest first. may_approve: whether the role that acts is an approver.
    owners: systems by the prefix of the destinations that belong to them.
    """

    time: datetime = START
    random: Random = field(default_factory=lambda: Random(0))
    owners: dict[str, str] = field(default_factory=dict)
    may_approve: bool = True
    late_answers: list[LateAnswer] = field(default_factory=list, init=False)
    _messages: dict[MessageId, _Message] = field(default_factory=dict, init=False, repr=False)
    _keys: dict[tuple[str, str], tuple[MessageId, object]] = field(default_factory=dict, init=False, repr=False)
    _last_sequences: dict[Lane, int] = field(default_factory=dict, init=False, repr=False)
    _released: dict[Lane, datetime] = field(default_factory=dict, init=False, repr=False)
    _pending: dict[MessageId, Pending] = field(default_factory=dict, init=False, repr=False)
    _leases: dict[MessageId, Lease] = field(default_factory=dict, init=False, repr=False)
    _parked: dict[MessageId, Parked] = field(default_factory=dict, init=False, repr=False)
    _closed: dict[MessageId, Closed] = field(default_factory=dict, init=False, repr=False)
    _evidence: dict[MessageId, tuple[Proof, ...]] = field(default_factory=dict, init=False, repr=False)
    _proposals: dict[tuple[str, MessageId], Proposal] = field(default_factory=dict, init=False, repr=False)
    _archive: dict[MessageId, tuple[HistoryEntry, ...]] = field(default_factory=dict, init=False, repr=False)
    _fenced: dict[MessageId, asyncio.Event] = field(default_factory=dict, init=False, repr=False)

    def advance(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)

    async def now(self) -> datetime:
        return self.time

    def at(self, now: datetime | None) -> datetime:
        """The moment of a verb: what it was given, or the store's own clock."""
        return self.time if now is None else now

    def copy(self) -> Self:
        """A store that goes on from here on its own. Values are shared, because none of them ever changes."""
        assert not self._fenced, "a record is running; its transaction cannot be copied"
        twin = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, dict | list):
                setattr(twin, name, value.copy())
        twin.random = Random()
        twin.random.setstate(self.random.getstate())
        return twin

    def owner_of(self, destination: str) -> str | None:
        """The system that a destination belongs to."""
        prefixes = [prefix for prefix in self.owners if destination.startswith(prefix)]
        return self.owners[max(prefixes, key=len)] if prefixes else None

    # reading aids for checks

    def state_of(self, id: MessageId) -> str | None:
        """Pending, leased, parked, or how it was closed; None where there is no such message (any more)."""
        place = self.place_of(id)
        return place.value if isinstance(place, Closed) else _STATES[type(place)]

    def place_of(self, id: MessageId) -> Place | None:
        """Where a message is, with everything that it carries there."""
        return self._pending.get(id) or self._leases.get(id) or self._parked.get(id) or self._closed.get(id)

    def places(self) -> dict[MessageId, Place]:
        return {**self._pending, **self._leases, **self._parked, **self._closed}

    def conservation(self) -> Conservation:
        tables: tuple[Sized, ...] = (self._messages, self._pending, self._leases, self._parked, self._closed)
        return Conservation(*map(len, tables))

    async def history(self, id: MessageId) -> Sequence[HistoryEntry]:
        return self._history(id)

    def _history(self, id: MessageId) -> list[HistoryEntry]:
        return sorted(self._archive.get(id, ()), key=lambda row: (row.completed_at, row.attempt))

    # enqueue

    def enqueue(self, message: NewMessage, *, now: Now = None, id: MessageId | None = None) -> Receipt:
        """What a producer's committed transaction leaves behind. id: given where another store chose it."""
        asked, moment = prepare(message), self.at(now)
        self._refuse_owned(asked.destination)
        _refuse_past_expiry(asked, moment)
        new_id = id or self._new_id()
        if asked.key is not None:
            fingerprint = (asked.destination, asked.kind, asked.order_by, asked.body)
            first, known = self._keys.setdefault((asked.tenant, asked.key), (new_id, fingerprint))
            if first != new_id:
                return self._duplicate(first, asked, same=known == fingerprint)
        self._pending[new_id] = place = self._numbered(_first_place(new_id, asked, moment))
        self._messages[new_id] = _Message(asked, json.loads(asked.headers or "{}"), moment, place.sequence)
        return Receipt(new_id, already_existed=False, sequence=place.sequence, state="pending")

    def _refuse_owned(self, destination: str) -> None:
        owner = self.owner_of(destination)
        if owner is not None:
            raise DestinationOwned(
                f"destination {destination} belongs to the system {owner}: only the functions of that system enqueue"
                " there."
            )

    def _numbered(self, place: Pending) -> Pending:
        """With the next number of its ordering key, if it has one."""
        if place.lane is None:
            return place
        self._last_sequences[place.lane] = number = self._last_sequences.get(place.lane, 0) + 1
        return replace(place, sequence=number)

    def _duplicate(self, first: MessageId, asked: Prepared, *, same: bool) -> Receipt:
        if not same and not asked.first_wins:
            raise KeyReused(f"The key {asked.key!r} belongs to message {first}, whose content is another.")
        known = self._messages.get(first)
        sequence = None if known is None else known.sequence
        return Receipt(first, already_existed=True, sequence=sequence, state=self.state_of(first) or "closed")

    def _new_id(self) -> MessageId:
        """A UUIDv7 of the store's own clock, whatever `now` a verb was given."""
        value = milliseconds(self.time) << 80 | 7 << 76 | self.random.getrandbits(12) << 64
        return MessageId(UUID(int=value | 2 << 62 | self.random.getrandbits(62)))

    def _move(self, id: MessageId, move: Move) -> None:
        """The only place where a message changes its place; a lane is released by whatever leaves a row behind."""
        lane = getattr(self._known(id), "lane", None)
        for table in (self._pending, self._leases, self._parked):
            table.pop(id, None)
        match move.to:
            case Pending():
                self._pending[id] = move.to
            case Lease():
                self._leases[id] = move.to
            case Parked():
                self._parked[id] = move.to
            case Closed():
                self._closed[id] = move.to
        if move.row is not None:
            self._archive[id] = (*self._archive.get(id, ()), move.row)
            if lane is not None:
                self._released[lane] = move.row.completed_at

    def _free_heads(self) -> dict[Lane, Pending]:
        """The heads that nothing blocks, the oldest lane first."""
        heads = free_heads(self._pending.values(), self._leases.values(), self._parked.values())
        return {lane: heads[lane] for lane in self._last_sequences if lane in heads}

    def _known(self, id: MessageId) -> Place:
        place = self.place_of(id)
        if place is None:
            raise NotFound(f"There is no message {id}.", next="redrive messages list")
        return place


_STATES: Final[Mapping[type, str | None]] = {Pending: "pending", Lease: "leased", Parked: "parked", type(None): None}


def require_actor_and_reason(actor: str, reason: str) -> None:
    if not actor.strip() or not reason.strip():
        raise InvalidValue(f"An act needs an actor and a reason; actor is {actor!r}, reason is {reason!r}.")


def milliseconds(moment: datetime) -> int:
    """Since the epoch: the first 48 bits of a UUIDv7."""
    return round(moment.timestamp() * 1_000_000) // 1000


def _first_place(id: MessageId, asked: Prepared, now: datetime) -> Pending:
    return Pending(
        id=id,
        tenant=asked.tenant,
        destination=asked.destination,
        level=asked.level,
        lane=None if asked.order_by is None else (asked.tenant, asked.order_by),
        due_at=now if asked.due_at is None else max(asked.due_at, now),
        expires_at=asked.expires_at,
    )


def _refuse_past_expiry(asked: Prepared, now: datetime) -> None:
    if asked.expires_at is not None and asked.expires_at <= now:
        raise InvalidValue(f"expires_at is {asked.expires_at}, which is not after now ({now}).")
