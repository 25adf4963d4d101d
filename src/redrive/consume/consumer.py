"""The declaration of a consumer, and what it says of one delivery. Pure: no broker and no database here."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from redrive.answers import Answer, Terminal
from redrive.consume.event import Event, read_event, stored_headers
from redrive.errors import InvalidPayload, InvalidValue
from redrive.ports.sources import Delivery, Source
from redrive.produce import bounds
from redrive.schemas import Schema

UNKNOWN_TYPE: Final = "UNKNOWN_TYPE"
TOO_LARGE: Final = "EVENT_TOO_LARGE"  # of the message that keeps its place
PREFETCH_DEFAULT: Final = 100
PREFETCH_MAX: Final = 10_000
MESSAGE_ID_MAX: Final = 500
ORDER_BY_MAX: Final = 1000
KIND_MAX: Final = 100
CONTENT_TYPE_MAX: Final = 100

Order = Literal["subject"] | Callable[[Event], str | None]
Types = Mapping[str, Any] | Iterable[str]


@dataclass(frozen=True, kw_only=True)
class Consumer:
    """A function that consumes events, and where they come from.

    source: a Source, or a function that makes one in the worker. types: the accepted types of events, with the schema
    of their data or None; None = all. order: the ordering key of an event; None = no order. timeout_seconds: for one
    call of the handler. concurrency: calls at a time in one worker. prefetch: messages in hand at a time, 1 to 10,000.
    """

    name: str
    source: Source | Callable[[], Source]
    handler: Callable[[Any, Event], Any]
    types: Mapping[str, Schema | None] | None
    order: Order | None
    timeout_seconds: float
    concurrency: int
    prefetch: int = PREFETCH_DEFAULT

    def __post_init__(self) -> None:
        bounds.name("consumer", self.name)
        if not callable(self.handler):
            raise InvalidValue(f"handler of {self.name!r} is a {type(self.handler).__name__}; it must be a function.")
        if not 1 <= self.prefetch <= PREFETCH_MAX:
            raise InvalidValue(f"prefetch of {self.name!r} is {self.prefetch}; it must be from 1 to {PREFETCH_MAX}.")
        if self.order is not None and self.order != "subject" and not callable(self.order):
            raise InvalidValue(f'order of {self.name!r} is {self.order!r}; it must be "subject", a function or None.')

    def open_source(self) -> Source:
        return self.source() if callable(self.source) else self.source

    def accepted(self, event: Event) -> Event:
        """The event with its schema. Raises `Terminal` for a type that is not declared, or data that do not fit."""
        if self.types is None:
            return event
        if event.type not in self.types:
            raise Terminal(UNKNOWN_TYPE, f"The consumer {self.name} does not know this type of event.")
        event = replace(event, schema=self.types[event.type])
        try:
            _ = event.data if event.schema is not None else None
        except InvalidPayload as error:
            raise Terminal("PAYLOAD_INVALID", error.args[0]) from None
        return event

    def arrived(self, delivery: Delivery) -> Arrived:
        """Never raises: what cannot be read is deferred, and parked by the destination."""
        try:
            event = read_event(delivery.headers, delivery.content_type, delivery.body)
        except Answer as problem:
            return Arrived(delivery, _short(delivery.id), _key(delivery.order_by), None, problem)
        message_id, order_by = _short(f"{event.source} {event.id}"), _key(delivery.order_by)
        try:
            order_by = _key(self._order_by(event))
            return Arrived(delivery, message_id, order_by, self.accepted(event), None)
        except Answer as problem:
            return Arrived(delivery, message_id, order_by, event, problem)
        except Exception as error:  # of the function `order`
            return Arrived(delivery, message_id, order_by, event, Terminal("ORDER_FAILED", type(error).__name__))

    def _order_by(self, event: Event) -> str | None:
        if callable(self.order):
            return self.order(event)
        return event.subject if self.order == "subject" else None


@dataclass(frozen=True, kw_only=False, eq=False)
class Arrived:
    """A delivery as the inbox takes it. event: None = it cannot be read. problem: why it is not processed here."""

    delivery: Delivery
    message_id: str
    order_by: str | None
    event: Event | None
    problem: Answer | None

    @property
    def kind(self) -> str:
        return "" if self.event is None else self.event.type[:KIND_MAX].replace("\0", "").strip()

    def as_message(self) -> dict[str, Any]:
        """The options of `defer`."""
        content_type = self.delivery.content_type
        fits = 0 < len(content_type) <= CONTENT_TYPE_MAX and content_type.isprintable()
        return {
            "order_by": self.order_by,
            "kind": self.kind,
            "headers": stored_headers(self.delivery.headers),
            "content_type": content_type if fits else "application/json",
        }


def declared_types(name: str, types: Types | None) -> Mapping[str, Schema | None] | None:
    if types is None:
        return None
    if isinstance(types, str):
        raise InvalidValue(f"types of {name!r} is a text; it must be a set of types, or map types to schemas.")
    given = types if isinstance(types, Mapping) else dict.fromkeys(types)
    if not given:
        raise InvalidValue(f"types of {name!r} is empty; leave it out to accept all types.")
    return {kind: None if schema is None else Schema(name, schema) for kind, schema in given.items()}


def _short(text: str) -> str:
    """Ids that the inbox cannot hold are hashed."""
    text = text.replace("\0", "")
    return text if 0 < len(text) <= MESSAGE_ID_MAX else f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _key(text: str | None) -> str | None:
    if not text:
        return None
    text = text.replace("\0", "")
    return text if 0 < len(text) <= ORDER_BY_MAX else hashlib.sha256(text.encode()).hexdigest()
