"""Event types, and how the idempotency key of each is made of what happened (T-01, T-10).

    TYPES = EventTypes()
    TYPES.declare("DefinitionPublished", category="definition", by=Version())
    TYPES.key("acme", "DefinitionPublished", entity="d-7", version=3)      # the same UUID on every machine

A key is made of tenant, category, entity, the event type, and what tells one such event of the entity from the next: a
version, a span of time, or a correlation. A part that is missing is refused, because the key would be that of another
event. `redrive.key` says how the parts are put together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Final, Literal, Protocol, TypeVar, get_args
from uuid import UUID

import redrive
from redrive.errors import InvalidValue

Algorithm = Literal["sha256", "uuid5", "seed003"]
EVENT_TYPE_MAX: Final = 100  # characters, as of a message's kind


class Recipe(Protocol):
    """What the last part of a key is made of. part: its name among the arguments of `EventTypes.key`."""

    @property
    def part(self) -> str: ...

    def of(self, value: Any) -> str | int: ...


@dataclass(frozen=True)
class Version:
    """The entity's version or sequence: one event for each."""

    part: str = "version"

    def of(self, value: Any) -> str | int:
        if type(value) is not int and not isinstance(value, str):
            raise InvalidValue(f"version is of type {type(value).__name__}; it must be a whole number or text.")
        return _not_empty("version", value)


@dataclass(frozen=True)
class TimestampBucket:
    """A span of time: events of one entity within the same `seconds` are one. The spans begin at the epoch, in UTC."""

    seconds: int = 60
    part: str = "at"

    def __post_init__(self) -> None:
        if type(self.seconds) is not int or not 1 <= self.seconds <= 86_400:
            raise InvalidValue(f"seconds of a bucket is {self.seconds!r}; it must be a whole number from 1 to 86400.")

    def of(self, value: Any) -> str | int:
        if not isinstance(value, datetime) or value.tzinfo is None:
            raise InvalidValue(f"at is {value!r}; it must be a datetime with a time zone.")
        return int(value.timestamp()) // self.seconds * self.seconds


@dataclass(frozen=True)
class Correlation:
    """An id that the cause of the event carries, such as of a request: its repetition is the same event."""

    part: str = "correlation"

    def of(self, value: Any) -> str | int:
        if not isinstance(value, str | UUID):
            raise InvalidValue(f"correlation is of type {type(value).__name__}; it must be text or a UUID.")
        return _not_empty("correlation", str(value))


Part = TypeVar("Part", str, str | int)


def _not_empty(name: str, value: Part) -> Part:
    """An empty text, as of a header that was not sent, would make one event of all."""
    if value == "":
        raise InvalidValue(f"{name} is empty; the key would be the same for every event of the entity without one.")
    return value


@dataclass(frozen=True, kw_only=True)
class EventType:
    """category: the kind of entity, such as `definition`. by: what tells two events of this type and entity apart; None
    = there is one for each entity, ever. keyed: False = nothing tells two of them apart, so each gets a new key."""

    name: str
    category: str
    by: Recipe | None = None
    keyed: bool = True


class EventTypes:
    """The event types of an application, by name."""

    def __init__(self, *, algorithm: Algorithm = "sha256") -> None:
        """algorithm: as of `redrive.key`; `seed003` for producers that follow the document's formula."""
        if algorithm not in get_args(Algorithm):
            raise InvalidValue(f"algorithm is {algorithm!r}; it must be one of {', '.join(get_args(Algorithm))}.")
        self._algorithm = algorithm
        self._types: dict[str, EventType] = {}

    def declare(self, name: str, *, category: str, by: Recipe | None = None, keyed: bool = True) -> EventType:
        """Make a type known. Refused where the name is taken, empty or too long."""
        if not 1 <= len(name) <= EVENT_TYPE_MAX:
            raise InvalidValue(f"Event type {name!r} must be a text of 1 to {EVENT_TYPE_MAX} characters.")
        if name in self._types:
            raise InvalidValue(f"Event type {name!r} is declared twice.")
        if not category:
            raise InvalidValue(f"Event type {name!r} needs a category, such as the kind of its entity.")
        if by is not None and (isinstance(by, type) or not isinstance(getattr(by, "part", None), str)):
            raise InvalidValue(f"by of event type {name!r} is {by!r}; it must be a recipe, such as Version().")
        if by is not None and not keyed:
            raise InvalidValue(f"Event type {name!r} has a recipe and keyed=False; leave one of them out.")
        self._types[name] = EventType(name=name, category=category, by=by, keyed=keyed)
        return self._types[name]

    def __iter__(self) -> Iterator[EventType]:
        return iter(self._types.values())

    def __contains__(self, name: object) -> bool:
        return name in self._types

    def find(self, name: str) -> EventType:
        found = self._types.get(name)
        if found is None:
            near = get_close_matches(str(name), self._types, n=1)
            advice = f"did you mean {near[0]!r}?" if near else f"known are: {', '.join(sorted(self._types)) or 'none'}."
            raise InvalidValue(f"There is no event type {name!r}; {advice}")
        return found

    def key(self, tenant: str, event_type: str, parts: Mapping[str, Any]) -> UUID:
        """The key of an event. parts: `entity`, and the part that the type's recipe needs."""
        declared = self.find(event_type)
        if not isinstance(parts, Mapping):
            raise InvalidValue(f"parts is of type {type(parts).__name__}; it must be a mapping of names to values.")
        entity = _part(declared, "entity", parts)
        last = None if declared.by is None else declared.by.of(_part(declared, declared.by.part, parts))
        unknown = sorted(set(parts) - {"entity"} - ({declared.by.part} if declared.by else set()))
        if unknown:
            needs = " and ".join(["entity", *([declared.by.part] if declared.by else [])])
            raise InvalidValue(f"The key of {declared.name} is made of {needs}; it has no part {unknown[0]!r}.")
        return UUID(
            redrive.key(
                tenant=tenant,
                category=declared.category,
                entity=entity,
                kind=declared.name,
                version=last,
                algorithm=self._algorithm,
            )
        )


def _part(declared: EventType, name: str, parts: Mapping[str, Any]) -> Any:
    value = parts.get(name)
    if value is None:
        needed = ["entity", *([declared.by.part] if declared.by else [])]
        raise InvalidValue(
            f"The key of {declared.name} is made of {' and '.join(needed)}, and {name} is missing; give it, or a key."
        )
    return value
