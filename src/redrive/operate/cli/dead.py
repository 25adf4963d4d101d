"""`redrive dead`: dead letters, which could not be delivered and wait for a person."""

from __future__ import annotations

import click

from redrive.message import ParkReason
from redrive.operate.cli import parked


@click.group()
def command() -> None:
    """Dead letters: what could not be delivered, and why.

    Fix the cause, then send them again with `redrive messages requeue`.
    """


parked.add_list(command, ParkReason.DEAD, "Dead letters, latest first.")
parked.add_show(command, ParkReason.DEAD)
parked.add_discard(command, ParkReason.DEAD, "Close dead letters for good: they are never sent. This cannot be undone.")
