"""`redrive payments reconcile`: compare intents, archive and the rails' statements, now."""

import asyncio
from collections.abc import Sequence
from typing import Final

import click

from redrive.errors import SettingsError
from redrive.kit.cli import Call, Column, Exit, example, load_app, output, plain_command
from redrive.kit.database import open_database
from redrive.systems.payments.rails import Rail, rails_of
from redrive.systems.payments.reconcile import DUTY, EVERY_SECONDS, LAG_SECONDS, Compared, reconcile

_COLUMNS: Final = (
    Column("rail", of="rail_type"),
    *output.right("read", "agreed", "confirmed"),
    Column("under way", "right", of="open"),
    Column("findings", "right", of=lambda one, _: len(one.findings)),
)
_FINDINGS: Final = (Column("rail"), Column("kind"), Column("what was found", grow=True, fold=True))


@click.command(
    "reconcile", epilog=example("redrive payments reconcile", "redrive payments reconcile --app shop:app --json")
)
@click.option("--app", "app_spec", metavar="MODULE:APP", help="Where the rails are declared. Default: redrive.toml.")
@click.option(
    "--lag-seconds",
    type=click.FloatRange(0),
    default=LAG_SECONDS,
    show_default=True,
    help="How long a rail may take to write down what it has answered.",
)
@plain_command
def command(call: Call, app_spec: str | None, lag_seconds: float) -> None:
    """Compare what was asked for, what our archive says, and what each rail's statement says.

    A payment that is parked and was made all the same becomes delivered, with the rail's reference. What cannot be
    explained is a finding: exit with 6. The duty of a relay does the same every five minutes. By hand it takes a login
    that is a member of redrive_payments.
    """
    app, _ = load_app(click.get_current_context(), app_spec)
    rails = [rail for rail in rails_of(app) if rail.has_statement]
    if not rails:
        raise SettingsError(
            "No rail that has a statement is declared.", next="write has_statement = true in [payments.rails.NAME]"
        )
    every_seconds = app.duties[DUTY].every_seconds if DUTY in app.duties else EVERY_SECONDS
    _report(call, asyncio.run(_compare(call.dsn, rails, lag_seconds, every_seconds)))


async def _compare(dsn: str, rails: Sequence[Rail], lag_seconds: float, every_seconds: float) -> list[Compared]:
    async with open_database(dsn) as store:
        return [await reconcile(store, rail, lag_seconds=lag_seconds, every_seconds=every_seconds) for rail in rails]


def _report(call: Call, compared: Sequence[Compared]) -> None:
    if call.json:
        output.document("reconciliation", {"rails": compared})
    else:
        output.show(output.records(_COLUMNS, compared))
        found = [(one.rail_type, finding.kind.value, finding.sentence) for one in compared for finding in one.findings]
        if found:
            output.show(output.table(_FINDINGS, found))
    if any(one.findings for one in compared):
        raise click.exceptions.Exit(Exit.FINDINGS)
