"""The inbox without I/O: receive a broker's message, or defer it to the engine. SQL: `verbs/inbox.sql`."""

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, LiteralString, NamedTuple

from redrive.message import MessageId
from redrive.produce import bounds, payload
from redrive.produce.protocol import Steps, as_uuid
from redrive.produce.trace_context import with_trace_context

MESSAGE_ID_MAX: Final = 500
ORDER_BY_MAX: Final = 1000

_RECEIVE: Final[LiteralString] = "SELECT redrive.inbox_receive_1(%s::text, %s::text, %s::text, %s::text)"
_DEFER: Final[LiteralString] = (
    "SELECT result, id FROM redrive.inbox_defer_1(%s::text, %s::text, %s::bytea, %s::text, %s::text, %s::text,"
    " %s::text, %s::text::json)"
)
_RESERVE: Final[LiteralString] = (
    "SELECT redrive.inbox_reserve_1(%s::text, %s::text, %s::text::json, %s::text, %s::text, %s::text, %s::text)"
)
_FULFIL: Final[LiteralString] = "SELECT redrive.inbox_fulfil_1(%s::text, %s::text)"
RESERVED_TYPE: Final = "application/vnd.redrive.reserved+json"  # of the note that keeps a message's place


class Received(StrEnum):
    """FIRST: process it in this transaction. SEEN: it was received before; only acknowledge it. BEHIND: an earlier
    message of its ordering key still waits in the engine; defer it, so that it does not overtake. RESERVED: the engine
    keeps its place, as it could not hold the message itself; process it in this transaction, and then fulfil it.
    """

    FIRST = "first"
    SEEN = "seen"
    BEHIND = "behind"
    RESERVED = "reserved"


class Deferred(NamedTuple):
    """A message that the engine delivers. id: of the engine's message. is_new: False = it was received before."""

    id: MessageId | None
    is_new: bool


def receive(consumer: str, message_id: str, *, order_by: str | None, tenant: str) -> Steps[Received]:
    rows = yield _RECEIVE, (*_of(consumer, message_id), _order_by(order_by), bounds.name("tenant", tenant))
    return Received(rows[0][0])


def defer(
    consumer: str,
    message_id: str,
    content: Any,
    *,
    order_by: str | None = None,
    tenant: str = "default",
    kind: str = "",
    headers: Mapping[str, str] | None = None,
    content_type: str | None = None,
) -> Steps[Deferred]:
    body, own_type = payload.encode(content)
    rows = yield (
        _DEFER,
        (
            *_of(consumer, message_id),
            body,
            _order_by(order_by),
            bounds.name("tenant", tenant),
            bounds.name("kind", kind, shortest=0),
            own_type if content_type is None else bounds.content_type(content_type),
            bounds.headers(with_trace_context(headers)),
        ),
    )
    result, id = rows[0]
    return Deferred(None if id is None else MessageId(as_uuid(id)), result == "deferred")


def reserve(
    consumer: str, message_id: str, note: Mapping[str, Any], *, order_by: str | None, tenant: str, kind: str
) -> Steps[bool]:
    """Keep the place of a message that the engine cannot hold; the broker keeps the message. False = it was received
    before."""
    rows = yield (
        _RESERVE,
        (
            *_of(consumer, message_id),
            json.dumps(note),
            RESERVED_TYPE,
            _order_by(order_by),
            bounds.name("tenant", tenant),
            bounds.name("kind", kind, shortest=0),
        ),
    )
    return bool(rows[0][0] == "reserved")


def fulfil(consumer: str, message_id: str) -> Steps[None]:
    """A message that was received as RESERVED is processed."""
    yield _FULFIL, _of(consumer, message_id)


def _of(consumer: object, message_id: object) -> tuple[str, str]:
    return bounds.name("consumer", consumer), bounds.text("message_id", message_id, longest=MESSAGE_ID_MAX)


def _order_by(value: object) -> str | None:
    return bounds.optional_text("order_by", value, longest=ORDER_BY_MAX)
