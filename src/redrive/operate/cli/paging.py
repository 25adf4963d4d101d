"""What list commands share: the options of a page, and how a page is shown."""

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import click

from redrive.errors import InvalidValue
from redrive.operate import cursors
from redrive.operate.cli import output
from redrive.operate.cli.context import Call
from redrive.operate.cli.output import Column
from redrive.operate.documents import listed
from redrive.store.reads.models import LIMIT_MAX, Page

Body = Callable[..., Any]


def _cursor(kind: Callable[..., Any]) -> Callable[[str], Any]:
    """Where the position is an id or a number, that itself will do."""

    def position(value: str) -> Any:
        try:
            return cursors.decode(kind, value, bare=True)
        except InvalidValue:
            raise click.BadParameter(f"{value!r} is no position; use the one that a page ends with.") from None

    return position


def page_options(option: str, kind: Callable[..., Any], *, rows: int = 50, of: str = "") -> Callable[[Body], Body]:
    """of: where only a part of the answer is a list, the option for that."""
    words = "Go on behind this position; each page says with which."
    going_on = click.option(
        option, type=_cursor(kind), help=f"With {of}: {words[0].lower()}{words[1:]}" if of else words
    )
    limit = click.option(
        "--limit", type=click.IntRange(1, LIMIT_MAX), default=rows, show_default=True, help="Rows of a page."
    )
    return lambda body: going_on(limit(body))


def show_page(
    call: Call,
    name: str,
    page: Page[Any, Any],
    columns: Sequence[Column],
    *,
    nothing: str,
    option: str = "--before",
    looked: str = "",
) -> None:
    """nothing: said of an empty page. looked: said of a bounded search that ended before the rows did."""
    shown = listed(page)
    if call.json:
        output.document(name, shown)
        return
    if page.rows:
        output.show(output.records(columns, page.rows, page.at))
    else:
        output.note(nothing)
    if page.looked_at:
        output.note(looked.format(page.looked_at))
    if page.next is not None:
        position = page.next if isinstance(page.next, UUID | int) else shown.next
        output.note(f"More: the same with {option} {position}")
