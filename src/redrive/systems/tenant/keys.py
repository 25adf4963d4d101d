"""Which idempotency key an event gets, the same for the writer and for the models of an ORM (T-01, T-11)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID, uuid4

from redrive.errors import InvalidValue
from redrive.systems.tenant.event_types import EventTypes


def choose_key(
    event_types: EventTypes,
    tenant: str,
    event_type: str,
    parts: Mapping[str, Any],
    given: UUID | str | None = None,
    *,
    new_key: Callable[[], UUID] = uuid4,
) -> UUID:
    """The given key, else the one that the type's recipe makes of the parts, else a new one where the type has none."""
    declared = event_types.find(event_type)
    if given is not None:
        return as_uuid(given)
    if declared.keyed:
        return event_types.key(tenant, event_type, parts)
    if parts:
        raise InvalidValue(f"Events of type {declared.name} are not keyed; leave `parts` out.")
    return new_key()


def as_uuid(key: UUID | str) -> UUID:
    try:
        return key if isinstance(key, UUID) else UUID(key)
    except (ValueError, TypeError, AttributeError):
        raise InvalidValue(
            f"key is {key!r}; it must be a UUID, such as `redrive.key` and `EventTypes.key` make."
        ) from None
