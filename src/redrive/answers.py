"""What a destination can answer: five answers to a send, three to a lookup.

A transport or a handler *returns* or *raises* one of them; `None` means `Delivered()`, and any other JSON value
`Delivered(result=value)`. `Retryable` and `Terminal` say that the effect did **not** happen, `Unknown` that it may have
happened (G-13: a timeout after the send is not a failure).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

UNCLASSIFIED: Final = "UNCLASSIFIED"
# The handler ended well and said something that cannot be kept: with every message its effect would happen once more.
RETURN_INVALID: Final = "RETURN_INVALID"
# The handler answered Advance, and its destination has a lookup and no declared stages: its effect has happened.
ADVANCE_UNDECLARED: Final = "ADVANCE_UNDECLARED"
# The row of a message has values that Python cannot read; nothing was sent.
UNDECODABLE: Final = "UNDECODABLE"
MESSAGE_GONE: Final = "MESSAGE_GONE"
_CODE = re.compile(r"[A-Z][A-Z0-9_]{0,63}\Z")


@dataclass
class Answer(Exception):
    """Base of the five answers. They are exceptions so that code deep inside a handler can simply raise one."""


@dataclass
class Delivered(Answer):
    """The effect happened.

    reference: the destination's own id for it, kept in the archive; at most 500 characters.
    result: a JSON value that is kept with the attempt (a later stage can read it).
    """

    reference: str | None = None
    result: Any = None


DELIVERED: Final = Delivered()  # what a handler that returns nothing has said


@dataclass
class Advance(Answer):
    """This stage is done; the same message goes on to the next one with a fresh budget.

    stage: name of the next stage. result: JSON value kept for the later stages.
    destination: where the next stage goes; None = the same destination.
    """

    stage: str
    result: Any = None
    destination: str | None = None


@dataclass
class Retryable(Answer):
    """The effect did not happen, and trying again can help.

    code: stable, upper case, e.g. HTTP_503; the `error_class` of the archive.
    text: short explanation without data of the message; redacted and cut to 2,000 characters.
    retry_after: what the destination asked for: seconds, an HTTP date, or None. Nonsense is ignored.
    destination_down: True only when no byte went out; spends no attempt where the destination has a breaker.
    status: the HTTP status, where that is all that the destination said. Where money moves, one of 500 or above proves
    nothing, and the answer is taken for Unknown.
    """

    code: str
    text: str = ""
    retry_after: float | str | None = None
    destination_down: bool = False
    status: int | None = field(default=None, compare=False)


@dataclass
class Terminal(Answer):
    """The effect did not happen, and trying again as it is cannot help. bug: it was our own unclassified exception."""

    code: str
    text: str = ""
    bug: bool = False


@dataclass
class Unknown(Answer):
    """The effect may have happened: a lost reply, a timeout after the first byte, a crash.

    bug: an unclassified exception, raised while the effect may already have begun.
    from_lookup: nothing was sent in this attempt; the lookup could not tell.
    wait_seconds: with from_lookup: ask again no sooner than this, and do not count it.
    """

    code: str
    text: str = ""
    bug: bool = False
    from_lookup: bool = False
    wait_seconds: float | None = None


class LookupAnswer(Exception):
    """Base of the three answers of a lookup."""


@dataclass
class Found(LookupAnswer):
    """The destination has it: the effect happened. A lookup may also answer `Delivered` or `Advance`: how it ended."""

    reference: str | None = None
    result: Any = None


@dataclass
class Absent(LookupAnswer):
    """The destination does not have it: the effect did not happen (believed once `lookup_after` has passed)."""


@dataclass
class CannotTell(LookupAnswer):
    """The destination could not say. The lookup is repeated on a budget of its own, never the send."""

    code: str = "LOOKUP_CANNOT_TELL"
    text: str = ""


_KINDS: Final[dict[str, type[Answer]]] = {
    "delivered": Delivered,
    "advance": Advance,
    "retryable": Retryable,
    "terminal": Terminal,
    "unknown": Unknown,
}


def label(answer: Answer) -> str:
    """The answer's name in the archive."""
    return type(answer).__name__.lower()


def to_json(answer: Answer) -> dict[str, Any]:
    """As it is kept with a message whose `record` failed."""
    return {"answer": label(answer), **{f.name: getattr(answer, f.name) for f in fields(answer) if f.compare}}


def from_json(value: Mapping[str, Any]) -> Answer:
    values = dict(value)
    return _KINDS[values.pop("answer")](**values)


def clean_code(code: object) -> str:
    """A code as the archive takes it. Recording an outcome never fails because of what the code looks like."""
    text = str(code)
    if _CODE.match(text):
        return text
    folded = re.sub(r"[^A-Z0-9_]+", "_", text.upper()).strip("_")[:64]
    return folded if _CODE.match(folded) else f"CODE_{folded}"[:64].rstrip("_")
