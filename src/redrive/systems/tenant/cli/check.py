"""`redrive tenant check`: the rollout checklist, as far as a database can tell."""

from __future__ import annotations

import sys

import click

from redrive.kit.cli import Call, Column, Exit, example, output, store_command
from redrive.kit.database import Database
from redrive.systems.tenant.check import check

_COLUMNS = (Column("check"), Column(""), Column("found", grow=True), Column("next", fold=True))


@click.command("check", epilog=example("redrive tenant check"))
@store_command
async def command(call: Call, store: Database) -> None:
    """Whether a rollout is complete: keys, relays, options, health. Exit code 6 where something is missing.

    The checklist with what only a person can see: docs/how-to/roll-out-the-tenant-outbox.md.
    """
    items = await check(store)
    if call.json:
        output.document("outbox_check", {"items": [item._asdict() for item in items]})
    else:
        rows = [
            (item.name, "ok" if item.is_well else "not ok", item.found, "" if item.is_well else item.next)
            for item in items
        ]
        output.show(output.table(_COLUMNS, rows))
    if not all(item.is_well for item in items):
        sys.exit(Exit.FINDINGS)
