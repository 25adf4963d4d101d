"""`redrive evidence`: a file for each command, imported when the command is used."""

from __future__ import annotations

from typing import Final

from redrive.kit.group import CommandGroup

command: Final = CommandGroup(
    "evidence",
    package=__name__,
    commands=["demo", "lineage", "retry", "show", "upload"],
    extra=["aiohttp", "aiosmtplib", "obstore"],
    about="Upload archives of dispute evidence, and see what became of each file: attached to its case once.",
)
