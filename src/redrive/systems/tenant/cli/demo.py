"""`redrive tenant demo`: three tenants and their subscribers; see `redrive.systems.tenant.demo`."""

from __future__ import annotations

from pathlib import Path

import click

from redrive.kit.cli import demo_home, example, output


@click.command("demo", epilog=example("redrive tenant demo", "redrive tenant demo --once"))
@click.option("--once", is_flag=True, help="End when the story is told, and compare it with the subscribers' ledger.")
@click.option(
    "--home",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where its data live. Default: beside those of `redrive demo`.",
)
@click.option("--dsn", metavar="DSN", help="Use this database instead of an embedded server.")
def command(once: bool, home: Path | None, dsn: str | None) -> None:
    """Watch events of three tenants: a duplicate is absorbed, a subscriber goes down, another is gone for good.

    Starts PostgreSQL and the subscribers by itself. Run other commands in the directory that it names: its
    `redrive.toml` knows the database.
    """
    from redrive.systems.tenant.demo.play import Demo, run  # what it needs is loaded only when it is used

    place = (home or demo_home().with_name(demo_home().name.replace("demo", "tenant-demo", 1))).absolute()
    raise click.exceptions.Exit(run(Demo(home=place, once=once, dsn=dsn), output.stdout()))
