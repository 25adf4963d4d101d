"""The one place through which data of messages reaches a page: redacted, and never as markup.

Numbers are kept as the text that was written, so none loses digits. Values are hidden unless a caller who may read
payloads asks for them; structure, names of fields, null and booleans are always shown.
"""

import difflib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final, NamedTuple

from redrive.message import is_json
from redrive.operate.sanitize import one_line

INDENT: Final = "  "
LINES_MAX: Final = 2000  # of a payload on a page
TEXT_MAX: Final = 4000  # characters of one value on a page
SECRET_NAMES: Final = re.compile(
    r"passw|secret|token|authori[sz]ation|cookie|api[-_]?key|private[-_]?key|signature|\bpin\b|cvv|cvc", re.IGNORECASE
)
_CSV_DANGER: Final = ("=", "+", "-", "@", "\t", "\r")


class Digits(str):
    __slots__ = ()


class Piece(NamedTuple):
    """Some text of one look. kind: key, text, number, word (true, false, null), sign, hidden."""

    kind: str
    text: str


Line = list[Piece]


@dataclass(frozen=True, slots=True)
class Shown:
    """A payload for a page. lines: JSON, a line each. note: why it is not shown, or not whole."""

    lines: Sequence[Line]
    note: str = ""


def payload(body: bytes, content_type: str, *, reveal: bool) -> Shown:
    if not is_json(content_type):
        return Shown([], f"It is {one_line(content_type, limit=100)}, {len(body):,} bytes; only JSON is shown.")
    try:
        parsed = parse(body.decode())
    except (ValueError, RecursionError):
        return Shown([], f"It is said to be JSON and is not; {len(body):,} bytes.")
    lines: list[Line] = []
    for line in _lines(parsed, reveal=reveal, cut=True):
        if len(lines) == LINES_MAX:
            return Shown(lines, f"Only the first {LINES_MAX:,} lines are shown.")
        lines.append(line)
    return Shown(lines)


def headers(values: Any, *, reveal: bool) -> list[tuple[str, Piece]]:
    """Names and values; names that look like a secret's are never revealed."""
    return [
        (one_line(name, limit=200), _scalar(str(value), reveal=reveal and not SECRET_NAMES.search(str(name))))
        for name, value in sorted(dict(values).items())
    ]


def parse(text: str) -> Any:
    return json.loads(text, parse_float=Digits, parse_int=Digits, parse_constant=Digits)


def pretty(text: str) -> str:
    return "\n".join("".join(piece.text for piece in line) for line in _lines(parse(text), reveal=True, cut=False))


def _lines(
    value: Any, start: Sequence[Piece] = (), indent: str = "", end: str = "", *, reveal: bool, cut: bool
) -> Iterator[Line]:
    """start: what stands before the value on its first line. end: the comma behind it, or nothing."""
    first = [*([Piece("sign", indent)] if indent and not start else []), *start]
    if isinstance(value, dict) and value:
        members: Sequence[tuple[str | None, Any]] = list(value.items())
        signs = "{}"
    elif isinstance(value, list) and value:
        members, signs = [(None, one) for one in value], "[]"
    else:
        yield [*first, _scalar(value, reveal=reveal, cut=cut), *([Piece("sign", end)] if end else [])]
        return
    yield [*first, Piece("sign", signs[0])]
    for at, (name, member) in enumerate(members):
        comma = "," if at + 1 < len(members) else ""
        deeper = indent + INDENT
        lead: Line = [Piece("sign", deeper)]
        if name is not None:
            lead += [Piece("key", json.dumps(name, ensure_ascii=False)), Piece("sign", ": ")]
        open_ = reveal and not (cut and name is not None and SECRET_NAMES.search(name))
        yield from _lines(member, lead, deeper, comma, reveal=open_, cut=cut)
    yield [Piece("sign", f"{indent}{signs[1]}{end}")]


def _scalar(value: Any, *, reveal: bool, cut: bool = True) -> Piece:
    match value:
        case None | True | False:
            return Piece("word", json.dumps(value))
        case {} | [] | "":
            return Piece("sign", json.dumps(value))
        case Digits():
            return Piece("number", str(value)) if reveal else Piece("hidden", "•••")
        case str():
            text = json.dumps(value, ensure_ascii=False)
            if not reveal:
                return Piece("hidden", f'"•••" {len(value):,} characters' if len(value) > 1 else '"•••"')
            return Piece("text", one_line(text, limit=TEXT_MAX) if cut else text)
    return Piece("hidden", "•••")


class DiffRow(NamedTuple):
    """One line beside its other. kind: same, changed, added, removed. A side is three parts, the middle one changed."""

    kind: str
    left: tuple[str, str, str] | None
    right: tuple[str, str, str] | None


CONTEXT_LINES: Final = 3


def side_by_side(before: str, after: str) -> list[DiffRow | None]:
    """Two texts line by line; None stands for lines left out because nothing changed near them."""
    old, new = before.splitlines(), after.splitlines()
    rows: list[DiffRow | None] = []
    for at, group in enumerate(
        difflib.SequenceMatcher(a=old, b=new, autojunk=False).get_grouped_opcodes(CONTEXT_LINES)
    ):
        if at:
            rows.append(None)
        for tag, a, b, c, d in group:
            rows += _rows(tag, old[a:b], new[c:d])
    return rows


def _rows(tag: str, old: Sequence[str], new: Sequence[str]) -> Iterator[DiffRow]:
    for left, right in zip_longest(old, new):
        if left is None:
            yield DiffRow("added", None, ("", right, ""))
        elif right is None:
            yield DiffRow("removed", ("", left, ""), None)
        elif tag == "equal":
            yield DiffRow("same", (left, "", ""), (right, "", ""))
        else:
            yield DiffRow("changed", *_marked(left, right))


def _marked(left: str, right: str) -> tuple[tuple[str, str, str], tuple[str, str, str]]:
    shortest = min(len(left), len(right))
    head = next((at for at in range(shortest) if left[at] != right[at]), shortest)
    rest = shortest - head
    tail = next((at for at in range(rest) if left[-1 - at] != right[-1 - at]), rest)

    def cut(text: str) -> tuple[str, str, str]:
        return text[:head], text[head : len(text) - tail], text[len(text) - tail :]

    return cut(left), cut(right)


def cell(value: object) -> str:
    """A value for a cell of a CSV file that a spreadsheet opens: never a formula, always one line."""
    text = one_line("" if value is None else value)
    return f"'{text}" if str(value).startswith(_CSV_DANGER) or text.startswith(_CSV_DANGER) else text
