"""`redrive unrecorded`: messages that were answered, but whose `record` failed."""

import click

from redrive.message import ParkReason
from redrive.operate.cli import acts, parked


@click.group()
def command() -> None:
    """Unrecorded messages: the destination answered, but your `record` failed.

    Fix `record`, then repair: it runs again with the answer that was kept. Nothing is sent.
    """


parked.add_parked(command, ParkReason.UNRECORDED, "Unrecorded messages")
acts.add_actions(command, "unrecorded")
