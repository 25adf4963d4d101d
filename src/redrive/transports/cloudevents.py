"""A message as a CloudEvent 1.0: attributes in headers (binary mode), or all of it in one JSON document (structured).

Every protocol has its own prefix for the attributes, and its own place for the content type: the transport adds them.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, get_args
from urllib.parse import quote

from redrive.errors import InvalidValue
from redrive.message import Attempt

Mode = Literal["binary", "structured"]
STRUCTURED_TYPE: Final = "application/cloudevents+json"
# What a header must not hold is percent-encoded (HTTP binding, 3.1.3.2): controls, space, double quote, percent,
# non-ASCII.
_HEADER_SAFE: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')


class Event(NamedTuple):
    """What goes out. attributes: the headers of binary mode, with the prefix of the protocol."""

    attributes: dict[str, str]
    content_type: str
    body: bytes


@dataclass(frozen=True)
class CloudEvents:
    """source: who sends, a URI such as "/shop/orders". mode: where the attributes go. The type is the message's kind,
    or its destination where it has none; the subject is its ordering key."""

    source: str
    mode: Mode = "binary"

    def __post_init__(self) -> None:
        if not self.source:
            raise InvalidValue("source of CloudEvents is empty; it must be a URI, such as /shop/orders.")
        if self.mode not in get_args(Mode):
            raise InvalidValue(f"mode of CloudEvents is {self.mode!r}; it must be one of {', '.join(get_args(Mode))}.")

    def wrap(self, attempt: Attempt, *, prefix: str = "ce-", is_encoded: bool = True) -> Event:
        """is_encoded: the protocol's headers hold ASCII only, so the values are percent-encoded."""
        attributes = self._attributes(attempt)
        if self.mode == "binary":
            shown = {
                name: quote(value, safe=_HEADER_SAFE) if is_encoded else value for name, value in attributes.items()
            }
            return Event(
                {f"{prefix}{name}": value for name, value in shown.items()}, attempt.content_type, attempt.body
            )
        event: dict[str, Any] = {**attributes, "datacontenttype": attempt.content_type, **_data(attempt)}
        return Event({}, STRUCTURED_TYPE, json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode())

    def _attributes(self, attempt: Attempt) -> dict[str, str]:
        attributes = {
            "specversion": "1.0",
            "id": str(attempt.id),
            "source": self.source,
            "type": attempt.kind or attempt.destination,
            "time": attempt.created_at.isoformat().replace("+00:00", "Z"),
        }
        if attempt.order_by is not None:
            attributes["subject"] = attempt.order_by
        return attributes


def _data(attempt: Attempt) -> dict[str, Any]:
    media = attempt.content_type.partition(";")[0].strip().lower()
    if media == "application/json" or media.endswith("+json"):
        return {"data": attempt.payload}
    return {"data_base64": base64.b64encode(attempt.body).decode()}
