"""`redrive prove`: our guarantees, run by you, with real processes, here and now."""

from __future__ import annotations

import secrets
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import click

from redrive.operate.cli import output
from redrive.operate.cli.bars import bars
from redrive.operate.cli.context import example
from redrive.operate.cli.exits import Exit

SEEDS = 1_000_000


@click.group("prove")
def command() -> None:
    """Try to break it, and see that nothing is lost, doubled or taken back."""


@command.command("engine", epilog=example("redrive prove engine", "redrive prove engine --seed 7 --scale 0.05 --json"))
@click.option("--seed", type=click.IntRange(0), help="What is drawn at random; the same seed draws the same faults.")
@click.option(
    "--scale",
    type=click.FloatRange(0.01, 1000),
    default=1.0,
    show_default=True,
    help="How many faults: 1 is some minutes, 0.05 is below one.",
)
@click.option("--dsn", metavar="DSN", help="A server to make a database on. Default: a server of its own.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of the report.")
def engine(seed: int | None, scale: float, dsn: str | None, as_json: bool) -> None:
    """Kill relays at every step boundary, freeze them, stop the database, lose replies; then check every message.

    Exit code 1 means that a guarantee was broken: the report names it, with the ids of the messages.
    """
    from redrive.prove.engine import prove  # what it needs is loaded only when it is used

    chosen = secrets.randbelow(SEEDS) if seed is None else seed
    output.note(f"Seed {chosen}. Ctrl-C ends it and takes everything away again.")
    with _ended_by_sigterm(), bars() as progress:
        report = prove(seed=chosen, scale=scale, dsn=dsn, progress=progress)
    if as_json:
        output.document("prove", report.document())
    else:
        for line in report.lines():
            click.echo(line)
    if not report.ok:
        raise click.exceptions.Exit(Exit.FAILED)


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """As by Ctrl-C: processes and directories are taken away."""

    def end(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
