"""`redrive db`: the schema, brought to what this version expects."""

from dataclasses import asdict
from typing import Any, Final, get_args

import click

from redrive.operate.cli import acts, output
from redrive.operate.cli.context import Call, example, plain_command, store_command
from redrive.operate.cli.exit_codes import Exit
from redrive.operate.cli.output import Column
from redrive.operate.documents import plain
from redrive.operate.installed import installed_sets
from redrive.operate.operations import explained
from redrive.store.migrations import migrate
from redrive.store.runtime.postgres import PostgresStore
from redrive.who import Who

_PHASES: Final = get_args(migrate.Phase)


@click.group()
def command() -> None:
    """Upgrade and check the schema in your database; declare that it was restored."""


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
    elif done.already_current:
        output.show("The schema was current already; nothing was changed.")
    else:
        output.show(f"Applied {len(done.applied)} files; the schema is current.")


@command.command("check", epilog=example("redrive db check --json"))
@plain_command
def check(call: Call) -> None:
    """Say whether the schema fits this version; exit with 6 if it does not."""
    with explained(call.dsn):
        checked = migrate.check(call.dsn, sets=installed_sets())
    if call.json:
        output.document("db.check", {"usable": checked.state in migrate.USABLE, **plain(checked)})
    else:
        output.show(f"{checked.state}: {checked.detail}", *(f"pending {label}" for label in checked.pending))
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


_RESTORED: Final = (Column("destination", grow=True), *output.right("pending", "dead"), Column("was paused"))


@command.command(
    "restored",
    epilog=example(
        "redrive db restored --reason 'base backup of 12:00, INC-7'", "redrive db restored --dry-run --reason 'a drill'"
    ),
)
@acts.dry_run
@acts.why
@store_command
async def restored(call: Call, store: PostgresStore, dry_run: bool, who: Who) -> None:
    """Declare that this database was restored, copied or promoted: what was committed last may be missing.

    Every destination that moves money is paused with the reason `epoch`, and all that waits there is in doubt: before
    it is sent, the other side is asked. A rail with a statement goes on by itself, once a comparison that began late
    enough has found nothing; any other when two people resume it.
    """
    paused = await store.declare_restored(**asdict(who), dry_run=dry_run)
    if call.json:
        output.document("db.restored", {"dry_run": dry_run, "destinations": [one._asdict() for one in paused]})
    elif paused:
        rows = [(one.destination, one.pending, one.dead, "yes" if one.paused_before else "no") for one in paused]
        output.show(output.table(_RESTORED, rows))
        output.note("Dry run: nothing was changed." if dry_run else "Paused; what is counted here is in doubt now.")
    else:
        output.note("No destination moves money here, so nothing is paused.")
