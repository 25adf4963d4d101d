"""`redrive held`: messages that may have been delivered; a person has to find out."""

import click

from redrive.message import ParkReason
from redrive.operate.cli import acts, parked


@click.group()
def command() -> None:
    """Held messages: the effect may have happened, and it could not be found out.

    Look at the destination's side. It happened: confirm. It did not: deny.
    """


parked.add_parked(command, ParkReason.HELD, "Held messages")
acts.add_actions(command, "held")
