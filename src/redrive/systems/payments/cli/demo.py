"""`redrive payments demo`: nine payments over three rails; see `redrive.systems.payments.demo`."""

from __future__ import annotations

from pathlib import Path

import click

from redrive.kit.cli import demo_home, example, output


@click.command("demo", epilog=example("redrive payments demo", "redrive payments demo --once"))
@click.option("--once", is_flag=True, help="End when the story is told, and look into the rails' ledgers.")
@click.option(
    "--home",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where its data live. Default: beside those of `redrive demo`.",
)
@click.option("--dsn", metavar="DSN", help="Use this database instead of an embedded server.")
def command(once: bool, home: Path | None, dsn: str | None) -> None:
    """Watch payments: a reply is lost, an account is closed, a rail pays too late, and nothing is paid twice.

    Starts PostgreSQL and three simulated rails by itself. What only a person can judge is held in the end, for you. Run
    other commands in the directory that it names: its `redrive.toml` knows the database and the rails.
    """
    from redrive.systems.payments.demo.play import Demo, run  # what it needs is loaded only when it is used

    place = (home or demo_home().with_name(demo_home().name.replace("demo", "payments-demo", 1))).absolute()
    raise click.exceptions.Exit(run(Demo(home=place, once=once, dsn=dsn), output.stdout()))
