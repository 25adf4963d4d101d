"""The option that goes on with the next page of a list, for every list command."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from redrive.errors import InvalidValue
from redrive.operate import cursors


class CursorType(click.ParamType[Any]):
    """The cursor that a page ended with. Where the position is an id or a number, that itself will do."""

    name = "position"

    def __init__(self, kind: Callable[..., Any]) -> None:
        self._kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return cursors.decode(self._kind, str(value), bare=True)
        except InvalidValue:
            self.fail(f"{value!r} is no position; use the one that a page ends with.", param, ctx)


def going_on(option: str, kind: Callable[..., Any], *, of: str = "") -> Callable[[Any], Any]:
    """`--before` or `--after`. of: where only a part of the answer is a list, the option that asks for it."""
    words = "Go on behind this position; each page says with which."
    return click.option(
        option, type=CursorType(kind), help=f"With {of}: {words[0].lower()}{words[1:]}" if of else words
    )
