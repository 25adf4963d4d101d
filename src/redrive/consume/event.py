"""A CloudEvent 1.0 as a handler gets it, read from a delivery in binary or structured mode. Pure."""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final
from urllib.parse import quote, unquote

from redrive.answers import Terminal
from redrive.message import Reader

MALFORMED: Final = "MALFORMED_EVENT"
STRUCTURED: Final = "application/cloudevents+json"
PREFIX: Final = "ce-"
# Of HTTP and NATS, of Kafka, and of AMQP (two ways of writing it).
_PREFIXES: Final = (PREFIX, "ce_", "cloudevents:", "cloudevents_")
_SAFE: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')
_REQUIRED: Final = ("specversion", "id", "source", "type")
_HEADERS_MAX, _HEADER_NAME_MAX, _HEADERS_BYTES_MAX = 45, 100, 7000  # room is left for the context of a trace


@dataclass(frozen=True)
class Event:
    """id, source: together unique. subject: what it is about; None = nothing is said. time: RFC 3339 text, or None.

    attributes: all of them, extensions too. body: the bytes of the data.
    """

    id: str
    source: str
    type: str
    body: bytes = b""
    content_type: str = "application/json"
    subject: str | None = None
    time: str | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
    schema: Reader | None = field(default=None, repr=False, compare=False)

    @cached_property
    def data(self) -> Any:
        """The data as JSON, or as the type that the consumer declares for this type of event."""
        return json.loads(self.body) if self.schema is None else self.schema.read(self.body)


def read_event(headers: Mapping[str, str], content_type: str, body: bytes) -> Event:
    """Raises `Terminal` with the code MALFORMED_EVENT; its text names the attribute, never a value."""
    media = content_type.partition(";")[0].strip().lower()
    if media == STRUCTURED:
        return _structured(body)
    return _event(binary_attributes(headers), body, content_type or "application/json")


def binary_attributes(headers: Mapping[str, str]) -> dict[str, str]:
    """The attributes among the headers, whatever prefix the protocol gives them."""
    found = {}
    for name, value in headers.items():
        prefix = next((one for one in _PREFIXES if name.lower().startswith(one)), None)
        if prefix is not None:
            found[name.lower().removeprefix(prefix)] = unquote(value) if prefix == PREFIX else value
    return found


def stored_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The attributes and other headers as a message of the engine can hold them; what does not fit is left out."""
    attributes = binary_attributes(headers)
    wanted = {f"{PREFIX}{name}": value for name, value in attributes.items()}
    wanted |= {n: v for n, v in headers.items() if not n.lower().startswith(_PREFIXES)}
    kept: dict[str, str] = {}
    size = 0
    for name, value in ((quote(n, safe=_SAFE), quote(v, safe=_SAFE)) for n, v in wanted.items()):
        size += len(name) + len(value) + 6
        if len(kept) < _HEADERS_MAX and 0 < len(name) <= _HEADER_NAME_MAX and size <= _HEADERS_BYTES_MAX:
            kept[name] = value
    return kept


def _structured(body: bytes) -> Event:
    try:
        document = json.loads(body)
    except ValueError:
        raise Terminal(MALFORMED, "The event is not JSON.") from None
    if not isinstance(document, dict):
        raise Terminal(MALFORMED, "The event is no JSON object.")
    data, encoded = document.pop("data", None), document.pop("data_base64", None)
    attributes = {name: value if isinstance(value, str) else json.dumps(value) for name, value in document.items()}
    try:
        content = base64.b64decode(encoded, validate=True) if encoded is not None else json.dumps(data).encode()
    except (TypeError, ValueError, binascii.Error):
        raise Terminal(MALFORMED, "data_base64 is not Base64.") from None
    return _event(attributes, content, attributes.get("datacontenttype", "application/json"))


def _event(attributes: Mapping[str, str], body: bytes, content_type: str) -> Event:
    missing = [name for name in _REQUIRED if not attributes.get(name)]
    if missing:
        raise Terminal(MALFORMED, f"The attribute {missing[0]} is missing.")
    if not attributes["specversion"].startswith("1."):
        raise Terminal(MALFORMED, "specversion is not 1.0.")
    return Event(
        attributes["id"],
        attributes["source"],
        attributes["type"],
        body,
        content_type,
        attributes.get("subject"),
        attributes.get("time"),
        attributes,
    )
