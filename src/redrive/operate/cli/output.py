"""What commands print: data on stdout, as a table or a JSON document; the rest on stderr.

On a terminal tables have lines and colours (`NO_COLOR` and `COLUMNS` are honoured); elsewhere nothing is cut.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, NoReturn

from rich import box
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from redrive.operate import time_format
from redrive.operate.documents import titled
from redrive.operate.sanitize import one_line

# Moments and durations in words.
ago, moment, short_moment = time_format.ago, time_format.moment, time_format.short_moment
span, until = time_format.span, time_format.until

WIDE: Final = 100_000  # columns where nothing is cut
GAP: Final = 2  # columns between two of a table
SHRUNK_MIN: Final = 8  # columns that a cell keeps when the terminal is narrow
_STATES: Final = {
    "cyan": ("pending", "would"),
    "blue": ("leased", "in flight"),
    "red": ("parked", "dead", "refused", "not_found"),
    "bold red": ("open", "regressed"),
    "magenta": ("held", "unrecorded"),
    "green": ("delivered", "done", "ready", "resolved"),
    "yellow": ("asked", "paused", "half open", "ramping", "retrying", "not due", "breaker open", "suspect"),
    "dim": ("snoozed", "ignored"),
}
STATE_STYLES: Final = {state: style for style, states in _STATES.items() for state in states}


@dataclass(frozen=True, slots=True)
class Column:
    """grow: cut with an ellipsis where the terminal is narrow. fold: wrapped there. The others keep their width.

    of: what it shows of a record, for `records`: an attribute, or a function of the record and the moment of the page;
    by default the attribute of its title.
    """

    title: str
    justify: Literal["left", "right"] = "left"
    grow: bool = False
    fold: bool = False
    of: str | Callable[[Any, Any], object] = ""

    def cell(self, record: Any, at: datetime | None) -> object:
        if callable(self.of):
            return self.of(record, at)
        return getattr(record, self.of or self.title.replace(" ", "_"))


def right(*titles: str) -> tuple[Column, ...]:
    return tuple(Column(title, "right") for title in titles)


def numbers(**styles: str) -> tuple[Column, ...]:
    """Attributes that are numbers, and the style of each where it is not 0."""
    return tuple(
        Column(words(name), "right", of=lambda one, _, name=name, style=style: number(getattr(one, name), style=style))  # type: ignore[misc]
        for name, style in styles.items()
    )


def since(title: str, of: str) -> Column:
    """How long ago that was."""
    return Column(title, of=lambda one, at: ago(getattr(one, of), at))


def utc(title: str, of: str) -> Column:
    return Column(f"{title} (UTC)", of=lambda one, _: short_moment(getattr(one, of)))


def growing(*titles: str) -> tuple[Column, ...]:
    return tuple(Column(title, grow=True) for title in titles)


class Printer(Console):
    """Its reader may leave at any time (`redrive messages list | head`)."""

    def on_broken_pipe(self) -> None:
        reader_left()


def reader_left() -> NoReturn:
    """The interpreter must not complain about stdout when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(0)


def stdout() -> Console:
    return _console(sys.stdout)


def stderr() -> Console:
    return _console(sys.stderr)


def _console(stream: Any) -> Console:
    console = Printer(file=stream, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = WIDE
    return console


def note(text: str, *, style: str = "") -> None:
    """A line for the person. Never broken: it may hold a command to copy."""
    stderr().print(Text(text, style=style), soft_wrap=True)


def prose(text: str, *, style: str = "") -> None:
    stderr().print(Text(text, style=style))


def document(name: str, value: Any, *, one_per_line: bool = False) -> None:
    raw(json.dumps(titled(name, value), ensure_ascii=False, indent=None if one_per_line else 2))


def raw(text: str) -> None:
    try:
        print(text, flush=True)
    except BrokenPipeError:
        reader_left()


def records(columns: Sequence[Column], found: Iterable[Any], at: datetime | None = None) -> Table:
    return table(columns, [[column.cell(one, at) for column in columns] for one in found])


def table(columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> Table:
    """A cell is a Text, or anything that is made harmless."""
    console = stdout()
    cells = [[_cell(value) for value in row] for row in rows]
    widths = _widths(columns, cells, console.width)
    made = Table(
        box=box.SIMPLE_HEAD if console.is_terminal else None,
        pad_edge=False,
        show_edge=False,
        padding=(0, 1 if console.is_terminal else 2, 0, 0),
        header_style="bold" if console.is_terminal else "",
        width=sum(widths) + GAP * len(widths),  # wider than the terminal rather than with cells cut off
    )
    for column, width in zip(columns, widths, strict=True):
        overflow: Literal["fold", "ellipsis"] = "fold" if column.fold else "ellipsis"
        made.add_column(column.title, justify=column.justify, no_wrap=not column.fold, overflow=overflow, width=width)
    for row in cells:
        made.add_row(*row)
    return made


def _widths(columns: Sequence[Column], cells: Sequence[Sequence[Text]], room: int) -> list[int]:
    """As wide as the widest cell; where that is too much, the widest columns that may shrink give way."""
    widths = [
        max(cell_len(column.title), *(_width(row[at]) for row in cells)) if cells else cell_len(column.title)
        for at, column in enumerate(columns)
    ]
    shrinking = [at for at, column in enumerate(columns) if column.grow or column.fold]
    while sum(widths) + GAP * len(widths) > room:
        widest = max(shrinking, key=lambda at: widths[at], default=None)
        if widest is None or widths[widest] <= SHRUNK_MIN:
            break
        widths[widest] -= 1
    return widths


def _width(cell: Text) -> int:
    return max((cell_len(line) for line in cell.plain.split("\n")), default=0)


def pairs(rows: Iterable[tuple[str, object]]) -> Table:
    made = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    made.add_column(style="bold" if stdout().is_terminal else "", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in rows:
        made.add_row(name, _cell(value))
    return made


def _cell(value: object) -> Text:
    return value if isinstance(value, Text) else Text("–" if value is None else one_line(value))


def show(*parts: RenderableType) -> None:
    console = stdout()
    for part in parts:
        console.print(part, crop=False)


def state(name: str, detail: str | None = None) -> Text:
    style = STATE_STYLES.get(detail or "", "") or STATE_STYLES.get(name, "")
    return Text(one_line(f"{name} ({detail})" if detail else name), style=style)


def words(name: str) -> str:
    return name.replace("_", " ")


def number(value: int, *, style: str = "") -> Text:
    return Text(f"{value:,}", style=style if value else "dim") if stdout().is_terminal else Text(str(value))
