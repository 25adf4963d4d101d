"""Canonical JSON: one value, one text, so that the fingerprint of the stored bytes is the fingerprint of the value.

What JSON cannot carry is refused with its place (`payload.items[3].at is a datetime`), never with the data.
"""

import json
import math
import re
from collections.abc import Iterator
from typing import Any, Final

from redrive.errors import InvalidPayload
from redrive.message import BYTES_CONTENT, JSON_CONTENT

BYTES_MAX: Final = 262_144
DEPTH_MAX: Final = 64
DIGITS_MAX: Final = 4300  # what Python's own parser takes by default

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))
_LONG_NUMBER: Final = re.compile(rf"[0-9]{{{DIGITS_MAX + 1}}}")
_INTEGER_LIMIT: Final = 10**DIGITS_MAX
_SCALARS: Final = frozenset({str, int, float, bool, type(None)})
_CONTAINERS: Final = frozenset({dict, list, tuple})
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}\Z")


def encode(payload: Any) -> tuple[bytes, str]:
    if isinstance(payload, bytes | bytearray | memoryview):
        return _within_size(bytes(payload), "it has"), BYTES_CONTENT
    return _within_size(canonical_json(payload), "as JSON it has"), JSON_CONTENT


def canonical_json(value: Any) -> bytes:
    if not _is_plain(value):
        _refuse_what_json_cannot_carry(value)
    try:
        text = _ENCODER.encode(value)
        body = text.encode()
    except (ValueError, TypeError) as error:
        _refuse_what_json_cannot_carry(value)
        raise InvalidPayload(f"payload cannot be written as JSON ({type(error).__name__}).") from error
    if "\\u0000" in text or (len(text) > DIGITS_MAX and _LONG_NUMBER.search(text)):
        _refuse_what_json_cannot_carry(value)  # or it only looks so: an escaped backslash, digits in a string
    return body


def _within_size(body: bytes, what: str) -> bytes:
    if len(body) > BYTES_MAX:
        raise InvalidPayload(
            f"payload is too large: {what} {len(body):,} bytes, at most {BYTES_MAX:,} are allowed."
            " Store it elsewhere and send where it is."
        )
    return body


def _is_plain(value: Any) -> bool:
    """True when it is certainly fine: built-in types, text keys, bounded."""
    if type(value) in _SCALARS:
        return True
    level, seen = [value], 0
    for _ in range(DEPTH_MAX):
        below: list[Any] = []
        for container in level:
            seen += len(container) if type(container) in _CONTAINERS else BYTES_MAX
            if seen >= BYTES_MAX or not _has_plain_members(container, below):
                return False
        if not below:
            return True
        level = below
    return False


def _has_plain_members(container: Any, below: list[Any]) -> bool:
    """Appends the containers that are in it to `below`."""
    members = container
    if type(container) is dict:
        if not all(type(key) is str for key in container):
            return False
        members = container.values()
    for member in members:
        if type(member) not in _SCALARS:
            if type(member) not in _CONTAINERS:
                return False
            below.append(member)
    return True


def _refuse_what_json_cannot_carry(value: Any) -> None:
    for count, (path, part) in enumerate(_parts(value, "payload", 0)):
        why = _why_not(part)
        if why:
            raise InvalidPayload(f"{path} {why}")
        if count > BYTES_MAX:
            raise InvalidPayload(f"payload is too large: it has more than {BYTES_MAX:,} parts.")


def _parts(value: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    yield path, value
    if not isinstance(value, dict | list | tuple):
        return
    if depth == DEPTH_MAX:
        raise InvalidPayload(f"payload is nested more than {DEPTH_MAX} levels deep, or contains itself.")
    if not isinstance(value, dict):
        for index, member in enumerate(value):
            yield from _parts(member, f"{path}[{index}]", depth + 1)
        return
    for key, member in value.items():
        if not isinstance(key, str):
            raise InvalidPayload(f"{path} has a key that is {_a(key)}; JSON takes text only.")
        yield f"a key of {path}", key
        yield from _parts(member, f"{path}{_step(key)}", depth + 1)


def _why_not(part: Any) -> str | None:
    if isinstance(part, str):
        return _why_not_text(part)
    if part is None or isinstance(part, bool | dict | list | tuple):
        return None
    if isinstance(part, int):
        long = not -_INTEGER_LIMIT < part < _INTEGER_LIMIT
        return f"is an integer of more than {DIGITS_MAX:,} digits; send it as text." if long else None
    if isinstance(part, float):
        return None if math.isfinite(part) else f"is {float(part)}, which JSON does not have; send null or text."
    return f"is {_a(part)}, which JSON does not have; make it text, a number, a list or a dict."


def _why_not_text(part: str) -> str | None:
    if "\0" in part:
        return "has a NUL character, which PostgreSQL cannot query as JSON; send the payload as bytes."
    try:
        part.encode()
    except UnicodeEncodeError:
        return "has a lone surrogate, which is no character; decode the text properly, or send the payload as bytes."
    return None


def _step(key: str) -> str:
    """A key that does not look like a field's name may be data, and is not shown."""
    return f".{key}" if _NAME.match(key) else "[…]"


def _a(value: object) -> str:
    name = type(value).__name__
    return f"{'an' if name[:1] in 'aeioAEIO' else 'a'} {name}"
