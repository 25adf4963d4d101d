"""Makes anything fit for a log line, a metric label, a parked record or a page (G-15).

An allow-list: a context keeps only the fields named here, a text only plain words, a stack only places in code.
Exception messages and local variables are never kept, because they carry the data of the message.
"""

import re
import traceback
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final

TEXT_MAX: Final = 2000  # characters, unless a destination keeps more (error_text_max)
LONG_TEXT_MAX: Final = 65_536
STACK_FRAMES_MAX: Final = 30
HIDDEN: Final = "[…]"

CONTEXT_FIELDS: Final = frozenset(
    {
        *("attempt", "body_bytes", "body_sha256", "content_type", "crashes", "destination", "error_type", "exhausted"),
        *("in_doubt", "kind", "lookups", "message_id", "policy_version", "reference", "request_id", "spent", "stage"),
        *("tenant", "token", "upstream_code", "version", "worker"),
    }
)

# A word of plain text, a small number, a code such as HTTP_503. Anything else in a text may be data, and is hidden.
_PLAIN = re.compile(r"(?:[A-Za-z]{1,24}|\d{1,5}(?:\.\d{1,3})?|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)[.,;:!?]?\Z")
_NUMBER = re.compile(r"[\d.,]+[.,;:!?]?\Z")
_QUOTED = re.compile(
    r"(?<!\w)'[^']*'|(?<!\w)\"[^\"]*\"(?!\w)|`[^`]*`|“[^”]*”|‘[^’]*’|«[^»]*»|\{.*\}|<[^>]*>|\[.*\]|\([^)]*\)", re.DOTALL
)
# What is left of these was cut through a quotation, so either half of the text may be data.
_HALF_QUOTED = re.compile(r"(?<!\w)'|[\"`“”‘«»{}<>\[\]()]")
_CREDENTIAL_FOLLOWS = re.compile(
    r"(?:bearer|basic|(?:password|passwd|secret|token|key|authorization|cookie)[:=])\Z", re.IGNORECASE
)
_RULE = re.compile(r"[a-z][a-z0-9_]{0,63}\Z")
_IDENTIFIER = re.compile(r"(?!.*://)[^\s@]*\Z")
_UNSTORABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


def text(value: object, *, limit: int = TEXT_MAX) -> str:
    """An explanation by a transport or an operator; everything that is not plain words is hidden."""
    if isinstance(value, _Vetted):
        return value
    given = storable(value, limit=4 * limit).replace(HIDDEN, " \0 ")
    spaced = _QUOTED.sub(" \0 ", given)
    if _HALF_QUOTED.search(spaced):
        return HIDDEN
    words = spaced.split()
    kept = [word if _is_plain(words, i) else HIDDEN for i, word in enumerate(words)]
    return storable(" ".join(_without_repeats(kept)), limit=limit)


class _Vetted(str):
    """Put together here, of words that are code: shown as it is."""

    __slots__ = ()


def broken_rule(what: str, *, path: Sequence[str | int | None], rule: str, others: int = 0) -> str:
    """Which rule a field breaks. path: None is a key that is data."""
    place = "".join(f"[{step}]" if isinstance(step, int) else f".{step or HIDDEN}" for step in path).lstrip(".")
    known = rule if _RULE.match(rule) else HIDDEN
    more = f" and {others} more" if others else ""
    return _Vetted(storable(f"{what}: {place or 'all of it'}: {known}{more}."))


def unkeepable(answer: object) -> str:
    """What a handler returned that cannot be kept, by its types: those are code, the values are data."""
    said = type(answer).__qualname__
    result = getattr(answer, "result", None)
    what = said if result is None else f"{said} with a result of the type {type(result).__qualname__}"
    return _Vetted(
        storable(
            f"The handler ended without an exception, so its effect has probably happened, and returned what cannot be"
            f" kept: {what}. It may return None, an answer, or a value that is JSON. If the effect is there, confirm it"
            f" instead of sending it again."
        )
    )


def _is_plain(words: list[str], i: int) -> bool:
    """Alone a short number is a count or a status; beside another it may be a card, a telephone or a person."""
    beside = [words[j] for j in (i - 1, i + 1) if 0 <= j < len(words)]
    if _NUMBER.match(words[i]) and any(_NUMBER.match(word) for word in beside):
        return False
    return bool(_PLAIN.match(words[i])) and not (i > 0 and _CREDENTIAL_FOLLOWS.match(words[i - 1]))


def storable(value: object, *, limit: int = TEXT_MAX) -> str:
    """Any value as text that PostgreSQL can always store: no NUL, no lone surrogate, cut on a character boundary."""
    try:
        plain = str(value)
    except Exception:  # an application's object whose __str__ fails
        plain = type(value).__qualname__
    return _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", plain)[:limit]


def context(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _plain(value) for name, value in values.items() if name in CONTEXT_FIELDS}


def stack(error: BaseException) -> str:
    """Where it happened: exception types and places in code, causes too; no messages, no locals, no source lines."""
    parts = []
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        parts.append("\n".join([error_type(current), *_places(current.__traceback__)]))
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return storable("\ncaused by ".join(parts), limit=4 * TEXT_MAX)


def error_type(error: BaseException) -> str:
    kind = type(error)
    return storable(
        kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}",
        limit=200,
    )


def _places(trace: TracebackType | None) -> list[str]:
    frames = traceback.extract_tb(trace)[-STACK_FRAMES_MAX:]
    return [f"  {_module_path(frame.filename)}:{frame.lineno} in {frame.name}" for frame in frames]


def _module_path(filename: str) -> str:
    """Enough to find the code, nothing about the machine."""
    return "/".join(filename.split("/")[-3:])


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping | list | tuple | set | frozenset | bytes | bytearray):
        return HIDDEN
    plain = storable(value, limit=200)
    return plain if _IDENTIFIER.match(plain) else text(plain, limit=200)


def _without_repeats(words: list[str]) -> list[str]:
    return [word for i, word in enumerate(words) if word != HIDDEN or i == 0 or words[i - 1] != HIDDEN]
