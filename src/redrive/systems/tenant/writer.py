"""`OutboxWriter`: a domain event of a tenant, in the caller's transaction (T-01, T-11).

An event whose key is known is a success that gives the first one back: nothing is written, whatever its payload, and
the transaction goes on. Works on every connection that `redrive.enqueue` takes; `aadd` and `atry_add` are for
asynchronous ones.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from typing import Any, Final
from uuid import UUID, uuid4

import redrive
from redrive import MessageId, Receipt
from redrive.errors import InvalidPayload, InvalidValue, NotFound
from redrive.kit.statements import canonical_json
from redrive.systems.tenant.event_types import EventTypes
from redrive.systems.tenant.keys import as_uuid, choose_key
from redrive.systems.tenant.names import LOGGER, OUTBOX_DEFAULT, destination_of

PAYLOAD_BYTES_MAX: Final = 262_144

_LOG = logging.getLogger(LOGGER)


@dataclass(frozen=True, slots=True)
class Event:
    """What happened. parts: what its key is made of (`EventTypes.key`). order_by: events with the same one reach the
    subscriber in the order of their commits. due_at: not before. headers: text to text, beside the payload."""

    event_type: str
    payload: Any
    _: KW_ONLY
    parts: Mapping[str, Any] = field(default_factory=dict)
    order_by: str | None = None
    due_at: datetime | None = None
    headers: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Added:
    """id: of the event, the first one's where it already existed. state: pending, leased, parked, or how it ended."""

    id: MessageId
    key: UUID
    already_existed: bool
    state: str


@dataclass(frozen=True, kw_only=True)
class OutboxWriter:
    """event_types: those that may be written. outbox: whose relays deliver them. payload_bytes_max: larger payloads are
    refused. new_key: for events without a key of their own."""

    event_types: EventTypes
    outbox: str = OUTBOX_DEFAULT
    payload_bytes_max: int = PAYLOAD_BYTES_MAX
    new_key: Callable[[], UUID] = uuid4

    def __post_init__(self) -> None:
        most = self.payload_bytes_max
        if type(most) is not int or not 1 <= most <= PAYLOAD_BYTES_MAX:
            raise InvalidValue(
                f"payload_bytes_max is {most!r}; it must be a whole number from 1 to {PAYLOAD_BYTES_MAX:,}."
            )

    def add(self, conn: Any, tenant: str, event: Event, *, key: UUID | str | None = None) -> Added:
        """Add an event. key: instead of the one that the type's recipe makes of `event.parts`."""
        made = self._key(tenant, event, key)
        options = self._options(tenant, event, made)
        return _added(redrive.enqueue(conn, destination_of(self.outbox), event.payload, **options), tenant, made)

    async def aadd(self, conn: Any, tenant: str, event: Event, *, key: UUID | str | None = None) -> Added:
        made = self._key(tenant, event, key)
        options = self._options(tenant, event, made)
        return _added(await redrive.aenqueue(conn, destination_of(self.outbox), event.payload, **options), tenant, made)

    def try_add(self, conn: Any, tenant: str, key: UUID | str, factory: Callable[[], Event]) -> Added:
        """Add the event that the factory makes, unless the key is known: then the factory is not called.

        Two transactions that begin with a new key at once may both call their factories; one event is written.
        """
        made = as_uuid(key)
        try:
            found = redrive.status(conn, key=str(made), tenant=tenant)
        except NotFound:
            return self.add(conn, tenant, factory(), key=made)
        return _known(found, tenant, made)

    async def atry_add(self, conn: Any, tenant: str, key: UUID | str, factory: Callable[[], Event]) -> Added:
        made = as_uuid(key)
        try:
            found = await redrive.astatus(conn, key=str(made), tenant=tenant)
        except NotFound:
            return await self.aadd(conn, tenant, factory(), key=made)
        return _known(found, tenant, made)

    def _key(self, tenant: str, event: Event, key: UUID | str | None) -> UUID:
        if not isinstance(event, Event):
            raise InvalidValue(f"event is of type {type(event).__name__}; it must be an Event.")
        return choose_key(self.event_types, tenant, event.event_type, event.parts, key, new_key=self.new_key)

    def _options(self, tenant: str, event: Event, key: UUID) -> dict[str, Any]:
        size = len(canonical_json(event.payload))
        if size > self.payload_bytes_max:
            raise InvalidPayload(
                f"The payload of {event.event_type} has {size:,} bytes; at most {self.payload_bytes_max:,} are allowed."
                " Put what is large where the subscriber can fetch it, and its address into the event."
            )
        return {
            "tenant": tenant,
            "kind": event.event_type,
            "key": str(key),
            "order_by": event.order_by,
            "due_at": event.due_at,
            "headers": event.headers,
            "on_other_payload": "first_wins",
        }


def _added(receipt: Receipt, tenant: str, key: UUID) -> Added:
    if receipt.already_existed:
        _tell_duplicate(tenant, key)
    return Added(receipt.id, key, already_existed=receipt.already_existed, state=receipt.state)


def _known(found: redrive.Status, tenant: str, key: UUID) -> Added:
    _tell_duplicate(tenant, key)
    return Added(found.id, key, already_existed=True, state=found.state)


def _tell_duplicate(tenant: str, key: UUID) -> None:
    _LOG.info("OUTBOX_WORKER_DUPLICATE", extra={"tenant": tenant, "key": str(key)})
