"""What the models of every ORM have in common: how an event gets its key, and why it is not changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NoReturn
from uuid import UUID, uuid4

from redrive.errors import InvalidValue, NoOpenTransaction, UsageError
from redrive.systems.tenant.event_types import EventTypes
from redrive.systems.tenant.keys import as_uuid, choose_key

VIEW: Final = "outbox_messages"
SCHEMA: Final = "redrive_tenant"
# What the database gives back by RETURNING.
NEVER_GIVEN: Final = ("id", "created_at")
RETURNED: Final = (*NEVER_GIVEN, "is_processed", "retry_count", "dead_letter", "state")


class KeyParts:
    """parts: what the key of one event is made of (`EventTypes.key`)."""

    @property
    def parts(self) -> Mapping[str, Any]:
        parts: Mapping[str, Any] = self.__dict__.get("_parts", {})
        return parts

    @parts.setter
    def parts(self, parts: Mapping[str, Any]) -> None:
        self.__dict__["_parts"] = parts


def key_of_model(
    event_types: EventTypes | None,
    tenant: str | None,
    event_type: str | None,
    parts: Mapping[str, Any],
    given: UUID | str | None,
) -> UUID:
    """The key of a model's event. Without event types a model has no recipes, so that `parts` would be of no use."""
    if event_types is not None:
        # An absent tenant or type is refused by the recipe, and by the database where the key was given.
        return choose_key(event_types, tenant or "", event_type or "", parts, given)
    if parts:
        raise InvalidValue("`parts` make a key by the recipe of an event type: give the model its `event_types`.")
    return uuid4() if given is None else as_uuid(given)


def refuse_change() -> NoReturn:
    raise UsageError(
        "An event is not updated or deleted after it was added: subscribers may have it. Add another event that says"
        " what changed; operators requeue, edit or discard what failed (`redrive messages`)."
    )


def refuse_given(name: str) -> NoReturn:
    raise InvalidValue(f"`{name}` of an event comes from the database; leave it out.")


def refuse_autocommit(write: str) -> NoReturn:
    raise NoOpenTransaction(
        f"This connection commits every statement by itself, so the event would not be in one transaction with your"
        f" rows. Write {write}."
    )
