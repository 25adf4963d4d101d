"""`redrive reviews reconcile`: compare our rows with the providers' records, now."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

import click

from redrive.errors import SettingsError
from redrive.kit.cli import Call, Column, Exit, example, load_app, output, plain_command
from redrive.kit.database import open_database
from redrive.systems.reviews.providers import Provider, providers_of
from redrive.systems.reviews.reconcile import Compared, reconcile

_COLUMNS: Final = (
    Column("provider"),
    Column("verified", "right"),
    Column("learned", "right"),
    Column("requeued", "right"),
    Column("held", "right"),
    Column("asked in vain", "right"),
)


@click.command(
    "reconcile", epilog=example("redrive reviews reconcile", "redrive reviews reconcile --app shop:app --json")
)
@click.option(
    "--app", "app_spec", metavar="MODULE:APP", help="Where the providers are declared. Default: redrive.toml."
)
@plain_command
def command(call: Call, app_spec: str | None) -> None:
    """Ask each provider for what is not verified yet; a duty of the relays does the same every minute.

    A delivery that is marked as sent and that its provider does not have is sent again, or held where the provider
    cannot be asked: exit with 6.
    """
    app, _ = load_app(click.get_current_context(), app_spec)
    providers = providers_of(app)
    if not providers:
        raise SettingsError(
            "No provider of reviews is declared.", next="write [reviews.providers.NAME] in redrive.toml"
        )
    compared = asyncio.run(_compare(call.dsn, providers))
    if call.json:
        output.document("reviews_reconciled", {"providers": [asdict(one) for one in compared]})
    else:
        output.show(output.table(_COLUMNS, [tuple(asdict(one).values()) for one in compared]))
    if any(one.requeued or one.held for one in compared):
        raise click.exceptions.Exit(Exit.FINDINGS)


async def _compare(dsn: str, providers: Sequence[Provider]) -> list[Compared]:
    async with open_database(dsn) as store:
        return [await reconcile(store, one) for one in providers]
