"""`redrive reviews demo`: a review from the commit to the mail; see `redrive.systems.reviews.demo`."""

from __future__ import annotations

from rich.console import Console

from redrive.kit.demo import Demo, demo_command


@demo_command("reviews", once="End when the mail has arrived.")
def command(demo: Demo, console: Console) -> int:
    """Watch a review: a repository is made, its last change is reviewed, and the mail is shown as it was received.

    Starts PostgreSQL, a mail server and a provider that loses its first reply. Run other commands in the directory
    that it names: its `redrive.toml` knows the database, the repository and the providers.
    """
    from redrive.systems.reviews.demo.play import run  # what it needs is loaded only when it is used

    return run(demo, console)
