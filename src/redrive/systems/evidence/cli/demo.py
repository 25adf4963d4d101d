"""`redrive evidence demo`: an archive from the upload to the two mails; see `redrive.systems.evidence.demo`."""

from __future__ import annotations

from rich.console import Console

from redrive.kit.demo import Demo, demo_command


@demo_command("evidence", once="End when both mails have arrived.")
def command(demo: Demo, console: Console) -> int:
    """Watch an upload of evidence: six files of three cases are attached, tried again where that helps, and the
    merchant gets two mails.

    Starts PostgreSQL, NATS, a mail server and a Case API that loses its first reply.
    """
    from redrive.systems.evidence.demo.play import run  # what it needs is loaded only when it is used

    return run(demo, console)
