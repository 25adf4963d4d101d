"""`redrive payments`: a file for each command, imported when the command is used."""

from typing import Final

from redrive.kit.group import CommandGroup, history_options

PROVE_OPTIONS: Final = history_options(200)
command: Final = CommandGroup(
    "payments",
    package=__name__,
    commands=["adopt", "audit", "demo", "findings", "participants", "rail", "reconcile", "show", "submit"],
    extra=["iso4217", "stdnum", "aiohttp"],
    about="Submit payments, and see what became of each: strict order, never paid twice.",
)
