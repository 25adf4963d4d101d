"""`redrive tenant`: a file for each command, imported when the command is used."""

from __future__ import annotations

from typing import Final

from redrive.kit.group import CommandGroup

command: Final = CommandGroup(
    "tenant",
    package=__name__,
    commands=["check", "health", "list", "metrics"],
    about="The tenant outbox: its events, numbers and health, and whether a rollout is complete.",
)
