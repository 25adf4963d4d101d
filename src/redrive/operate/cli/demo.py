"""`redrive demo`: a shop that takes orders, and what becomes of them; see `redrive.demo`."""

from pathlib import Path

import click

from redrive.demo.run import ORDERS_ONCE, Demo, run
from redrive.operate.cli import output
from redrive.operate.cli.context import example
from redrive.operate.cli.local_server import demo_home


@click.command("demo", epilog=example("redrive demo", "redrive demo --once"))
@click.option("--once", is_flag=True, help="Take a number of orders, check every one of them, and end.")
@click.option(
    "--orders",
    type=click.IntRange(1, 10_000),
    default=ORDERS_ONCE,
    show_default=True,
    help="With --once: how many orders.",
)
@click.option(
    "--home",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where its data live. Default: beside the embedded server's, one place for each clone; it is printed.",
)
@click.option("--dsn", metavar="DSN", help="Use this database instead of an embedded server.")
def command(once: bool, orders: int, home: Path | None, dsn: str | None) -> None:
    """Watch it work: one destination is healthy, one flaky, one down.

    Starts PostgreSQL by itself, and the console, whose link it prints. Ctrl-C ends it cleanly; the data stay, and the
    next start goes on. With --once it exits with 0 if every order was delivered or parked with its reason, and none was
    sent twice.
    """
    answer = run(Demo(home=home or demo_home(), once=once, orders=orders, dsn=dsn), output.stdout())
    raise click.exceptions.Exit(answer)
