"""`redrive tenant demo`: three tenants and their subscribers; see `redrive.systems.tenant.demo`."""

from __future__ import annotations

from rich.console import Console

from redrive.kit.demo import Demo, demo_command


@demo_command("tenant", once="End when the story is told, and compare it with the subscribers' ledger.")
def command(demo: Demo, console: Console) -> int:
    """Watch events of three tenants: a duplicate is absorbed, a subscriber goes down, another is gone for good.

    Starts PostgreSQL and the subscribers by itself. Run other commands in the directory that it names: its
    `redrive.toml` knows the database.
    """
    from redrive.systems.tenant.demo.play import run  # what it needs is loaded only when it is used

    return run(demo, console)
