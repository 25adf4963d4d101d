"""Bounds of names, key, headers and times (G-19); every refusal is an `InvalidValue`.

The verbs check the same bounds (`verbs/check_message.sql`); only they judge whether `expires_at` has passed.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, get_args

from redrive.errors import InvalidPayload, InvalidValue
from redrive.message import OnOtherPayload, Priority
from redrive.produce.payload import canonical_json

NAME_MAX: Final = 100
KEY_MAX: Final = 1000
ORDER_BY_MAX: Final = 200
HEADERS_MAX: Final = 50
HEADER_NAME_MAX: Final = 100
HEADERS_BYTES_MAX: Final = 8192
SHOWN_MAX: Final = 60

_CHOICES: Final = get_args(OnOtherPayload)


def name(what: str, value: object, *, shortest: int = 1) -> str:
    """Up to 100 characters, no white space at an end."""
    return _known_name(what, value, shortest) if type(value) is str else _name(what, value, shortest)


def _name(what: str, value: object, shortest: int) -> str:
    text = _text(what, value, shortest=shortest, longest=NAME_MAX)
    if text != text.strip():
        raise InvalidValue(f"{what} is {shown(text)}; it must not begin or end with white space.")
    return text


_known_name: Final = lru_cache(maxsize=1024)(_name)  # a program has a few, and uses them over and over


def text(what: str, value: object, *, longest: int) -> str:
    return _text(what, value, shortest=1, longest=longest)


def key(value: object) -> str | None:
    return optional_text("key", value, longest=KEY_MAX)


def optional_text(what: str, value: object, *, longest: int) -> str | None:
    return None if value is None else text(what, value, longest=longest)


def content_type(value: object) -> str:
    return _printable("content_type", text("content_type", value, longest=NAME_MAX))


def headers(value: object) -> str | None:
    """As canonical JSON."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise InvalidValue(f"headers are of type {type(value).__name__}; they must map text to text.")
    if len(value) > HEADERS_MAX:
        raise InvalidValue(f"headers has {len(value)} entries; at most {HEADERS_MAX} are allowed.")
    given = dict(_header(item, content) for item, content in value.items())
    return _within_bytes(given) if given else None


def _header(item: object, content: object) -> tuple[str, str]:
    title = _printable("A header's name", text("A header's name", item, longest=HEADER_NAME_MAX))
    what = f"header {title!r}"
    return title, _printable(what, _text(what, content, shortest=0, longest=HEADERS_BYTES_MAX))


def _within_bytes(given: dict[str, str]) -> str:
    try:
        text = canonical_json(given)
    except InvalidPayload as error:  # cannot happen after _header; a refusal is a refusal all the same
        raise InvalidValue(f"headers cannot be stored: {error}") from error
    if len(text) > HEADERS_BYTES_MAX:
        raise InvalidValue(f"headers have {len(text):,} bytes in all; at most {HEADERS_BYTES_MAX:,} are allowed.")
    return text.decode()


def times(due_at: object, expires_at: object) -> tuple[datetime | None, datetime | None]:
    due, expires = moment("due_at", due_at), moment("expires_at", expires_at)
    if due is not None and expires is not None and expires <= due:
        raise InvalidValue(f"expires_at ({expires}) is not after due_at ({due}): the message could never be sent.")
    return due, expires


def moment(what: str, value: object) -> datetime | None:
    if value is None:
        return None
    if not isinstance(value, datetime):
        raise InvalidValue(f"{what} is of type {type(value).__name__}; it must be an aware datetime, or None.")
    if value.utcoffset() is None:
        raise InvalidValue(f"{what} is {value}, without a time zone; say which, such as tzinfo=datetime.UTC.")
    try:
        value.astimezone(UTC)
    except OverflowError:
        raise InvalidValue(f"{what} is {value}; in UTC it must be of the years 1 to 9999.") from None
    return value


def level(priority: object) -> int:
    if type(priority) is Priority:
        return priority.level
    try:
        return Priority(priority).level  # type: ignore[arg-type]
    except ValueError:
        choices = ", ".join(Priority)
        raise InvalidValue(f"priority is {shown(priority)}; it must be one of {choices}.") from None


def choice(on_other_payload: object) -> str:
    if on_other_payload not in _CHOICES:
        raise InvalidValue(f"on_other_payload is {shown(on_other_payload)}; it must be one of {', '.join(_CHOICES)}.")
    return str(on_other_payload)


def shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"


def _text(what: str, value: object, *, shortest: int, longest: int) -> str:
    if not isinstance(value, str):
        raise InvalidValue(f"{what} is of type {type(value).__name__}; it must be text.")
    text = str.__str__(value)  # an enumeration's value, not its name
    if not shortest <= len(text) <= longest:
        raise InvalidValue(f"{what} has {len(text):,} characters; it must have {shortest} to {longest:,}.")
    if "\0" in text:
        raise InvalidValue(f"{what} is {shown(text)}; PostgreSQL cannot store a NUL character.")
    return whole_characters(what, text)


def whole_characters(what: str, text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidValue(f"{what} is {shown(text)}; it has a lone surrogate, which is no character.") from None
    return text


def _printable(what: str, text: str) -> str:
    if any(character < " " or character == "\x7f" for character in text):
        raise InvalidValue(f"{what} is {shown(text)}; control characters are not allowed.")
    return text
