"""`redrive payments`: one file per noun; a file is imported when its noun is used."""

from __future__ import annotations

from importlib import import_module
from typing import Final

import click

from redrive.errors import SettingsError

EXTRA: Final = ("iso4217", "stdnum", "aiohttp")  # of the extra `payments`
# Noun to module, which has it as `command`.
NOUNS: Final = {
    name: f"{__name__}.{name}"
    for name in (
        "adopt",
        "audit",
        "demo",
        "findings",
        "participants",
        "rail",
        "reconcile",
        "show",
        "submit",
    )
}


class Nouns(click.Group):
    """The commands of the system."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """By name."""
        return sorted(NOUNS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Imported now."""
        if cmd_name not in NOUNS:
            return None
        try:
            found: click.Command = import_module(NOUNS[cmd_name]).command
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] not in EXTRA:
                raise
            raise SettingsError(f"Payments need {error.name}.", next="pip install 'redrive[payments]'") from error
        return found


@click.command("payments", cls=Nouns)
def command() -> None:
    """Submit payments, and see what became of each: strict order, never paid twice."""
