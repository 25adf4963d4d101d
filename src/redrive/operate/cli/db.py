"""`redrive db`: the schema, brought to what this version expects."""

from __future__ import annotations

from typing import Any, Final, get_args

import click
from rich.text import Text

from redrive.operate.cli import output
from redrive.operate.cli.context import Call, example, plain_command
from redrive.operate.cli.exits import Exit
from redrive.operate.installed import installed_sets
from redrive.operate.operations import explained
from redrive.store import migrate

_PHASES: Final = get_args(migrate.Phase)


@click.group()
def command() -> None:
    """Upgrade and check the schema in your database."""


@command.command("upgrade", epilog=example("redrive db upgrade", "redrive db upgrade --phase pre"))
@click.option(
    "--phase",
    type=click.Choice(_PHASES),
    default="all",
    show_default=True,
    help="pre: before the new version is rolled out; post: when no old one runs any more.",
)
@click.option(
    "--lock-timeout-seconds",
    type=click.FloatRange(0, migrate.LOCK_TIMEOUT_SECONDS_MAX, min_open=True),
    default=5.0,
    show_default=True,
    help="Longest wait for a lock that others queue behind.",
)
@click.option(
    "--wait-seconds",
    type=click.FloatRange(0),
    default=600.0,
    show_default=True,
    help="Longest wait for another migrator.",
)
@plain_command
def upgrade(call: Call, **options: Any) -> None:
    """Apply what is pending. Safe to run twice, and from several machines at once."""
    with explained(call.dsn):
        done = migrate.upgrade(call.dsn, sets=installed_sets(), progress=output.note, **options)
    if call.json:
        output.document("db.upgrade", {"already_current": done.already_current, "applied": done.applied})
        return
    if done.already_current:
        output.show(Text("The schema was current already; nothing was changed."))
    else:
        output.show(Text(f"Applied {len(done.applied)} files; the schema is current."))


@command.command("check", epilog=example("redrive db check --json"))
@plain_command
def check(call: Call) -> None:
    """Say whether the schema fits this version; exit with 6 if it does not."""
    with explained(call.dsn):
        checked = migrate.check(call.dsn, sets=installed_sets())
    if call.json:
        output.document("db.check", {"usable": checked.state in migrate.USABLE, **output.plain(checked)})
    else:
        output.show(Text(f"{checked.state}: {checked.detail}"))
        output.show(*(Text(f"pending {label}") for label in checked.pending))
        if checked.next:
            output.note(f"Next: {checked.next}")
    if checked.state not in migrate.USABLE:
        raise click.exceptions.Exit(Exit.FINDINGS)


@command.command("sql", epilog=example("redrive db sql > redrive.sql", "redrive db sql --above 2 --no-transactions"))
@click.option("--phase", type=click.Choice(_PHASES), default="all", show_default=True, help="As in upgrade.")
@click.option("--above", type=click.IntRange(0), default=0, help="Leave out the engine's files up to this number.")
@click.option("--no-transactions", is_flag=True, help="Without BEGIN and COMMIT, for a tool that adds them.")
@plain_command
def sql(call: Call, phase: migrate.Phase, above: int, no_transactions: bool) -> None:
    """Print the migrations as one script, for psql, Alembic or Flyway. Needs no database."""
    numbers = {migrate.engine_set().name: above}
    script = migrate.sql(phase, installed_sets(), above=numbers, transactions=not no_transactions)
    if call.json:
        output.document("db.sql", {"phase": phase, "sql": script})
    else:
        output.raw(script.rstrip("\n"))
