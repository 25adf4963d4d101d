"""Opaque page cursors: the position where a page ended, as text. A position is a number, a UUID, or a named tuple."""

import base64
import json
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import Enum
from typing import Any, Final, TypeVar, cast, get_type_hints
from uuid import UUID

from redrive.errors import InvalidValue
from redrive.store.reads.models import KeyGroup

LENGTH_MAX: Final = 500
Position = TypeVar("Position")


def encode(position: Any) -> str | None:
    if position is None:
        return None
    parts = position if isinstance(position, tuple) else (position,)
    return base64.urlsafe_b64encode(json.dumps([_written(part) for part in parts]).encode()).decode().rstrip("=")


def _written(part: Any) -> str:
    match part:
        case datetime():
            return part.isoformat()
        case bytes():
            return part.hex()
        case Enum():
            return str(part.value)
    return str(part)


def decode(kind: Callable[..., Position], cursor: str | None, *, bare: bool = False) -> Position | None:
    """bare: an id or a number itself will do too. InvalidValue for any other text."""
    if cursor is None:
        return None
    try:
        if len(cursor) > LENGTH_MAX:
            raise ValueError
        return _read(kind, [cursor] if bare and _is_bare(kind, cursor) else _parts(cursor))
    except (ValueError, TypeError, RecursionError, OverflowError):
        raise InvalidValue("`after` is no position; use the `next` of a page.") from None


def _is_bare(kind: Any, text: str) -> bool:
    reader = _READERS.get(_plain(kind))
    try:
        return reader is not None and reader(text) is not None
    except ValueError:
        return False


def _parts(cursor: str) -> list[str]:
    parts = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise ValueError
    return parts


def _read(kind: Callable[..., Position], parts: list[str]) -> Position:
    if reader := _READERS.get(_plain(kind)):
        (part,) = parts
        return cast("Position", reader(part))
    types = get_type_hints(kind).values()
    return kind(*(_READERS[_plain(type_)](part) for type_, part in zip(types, parts, strict=True)))


def _plain(kind: Any) -> Any:
    """`MessageId` is a UUID."""
    return getattr(kind, "__supertype__", kind)


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError
    return moment


def _number(text: str) -> int:
    number = int(text)
    if not 0 <= number < 2**63:
        raise ValueError
    return number


_READERS: Final[Mapping[Any, Callable[[str], Any]]] = {
    int: _number,
    UUID: UUID,
    datetime: _moment,
    bytes: bytes.fromhex,
    KeyGroup: KeyGroup,
}
