"""`redrive reviews demo`: a review from the commit to the mail; see `redrive.systems.reviews.demo`."""

from __future__ import annotations

from pathlib import Path

import click

from redrive.kit.cli import demo_home, example, output


@click.command("demo", epilog=example("redrive reviews demo", "redrive reviews demo --once"))
@click.option("--once", is_flag=True, help="End when the mail has arrived.")
@click.option(
    "--home",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where its data live. Default: beside those of `redrive demo`.",
)
@click.option("--dsn", metavar="DSN", help="Use this database instead of an embedded server.")
def command(once: bool, home: Path | None, dsn: str | None) -> None:
    """Watch a review: a repository is made, its last change is reviewed, and the mail is shown as it was received.

    Starts PostgreSQL, a mail server and a provider that loses its first reply. Run other commands in the directory
    that it
    names: its `redrive.toml` knows the database, the repository and the providers.
    """
    from redrive.systems.reviews.demo.play import Demo, run  # what it needs is loaded only when it is used

    place = (home or demo_home().with_name(demo_home().name.replace("demo", "reviews-demo", 1))).absolute()
    raise click.exceptions.Exit(run(Demo(home=place, once=once, dsn=dsn), output.stdout()))
