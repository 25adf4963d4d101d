"""`redrive reviews`: a file for each command, imported when the command is used."""

from __future__ import annotations

from typing import Final

from redrive.kit.group import CommandGroup

command: Final = CommandGroup(
    "reviews",
    package=__name__,
    commands=["attempts", "decide", "demo", "list", "reconcile", "rerun", "show", "submit"],
    extra=["aiohttp", "aiosmtplib"],
    about="Submit changelists for review, and see what became of each: every recipient notified once per version.",
)
