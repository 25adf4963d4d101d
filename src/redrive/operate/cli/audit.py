"""`redrive audit`: what people did, and whether that record is as it was written."""

import json
from typing import Any, Final

import click
from rich.text import Text

from redrive.operate.cli import output
from redrive.operate.cli.context import Call, example, store_command
from redrive.operate.cli.exit_codes import Exit
from redrive.operate.cli.output import Column
from redrive.operate.cli.paging import page_options, show_page
from redrive.operate.desk import audit
from redrive.store.reads.models import AuditEntry
from redrive.store.runtime.postgres import PostgresStore

_COLUMNS: Final = (
    Column("#", "right", of="id"),
    output.utc("at", "at"),
    Column("actor", grow=True),
    Column("act"),
    *output.growing("subject", "reason"),
    Column("before → after", fold=True, of=lambda entry, _: _change(entry)),
)


@click.group()
def command() -> None:
    """Every act of an operator: who, when, why, what was before and after. `verify` detects changes."""


@command.command("list", epilog=example("redrive audit list", "redrive audit list --subject erp --json"))
@click.option("--subject", help="Only of this message, destination, `group ID` or `replay ID`.")
@page_options("--before", int)
@store_command
async def list_(call: Call, store: PostgresStore, **wanted: Any) -> None:
    """What was done, latest first."""
    page = await audit.list_audit(store, **wanted)
    nothing = "No act is recorded" + (" for that." if wanted["subject"] else " yet.")
    show_page(call, "audit", page, _COLUMNS, nothing=nothing)


def _change(entry: AuditEntry) -> str:
    return " → ".join(json.dumps(one, ensure_ascii=False) for one in (entry.before, entry.after) if one is not None)


@command.command("verify", epilog=example("redrive audit verify", "redrive audit verify --head 812:9c0f…"))
@click.option("--head", "noted", metavar="NUMBER:HASH", help="A head that was noted earlier; it has to be there still.")
@store_command
async def verify(call: Call, store: PostgresStore, noted: str | None) -> None:
    """Compute every hash again. Exit code 6 where the record was changed.

    A row that was changed, taken away or put in another place is found. That the last rows were cut off, or all of it
    was written anew, shows only against a head that was noted outside this database: keep what this prints.
    """
    verified = await audit.verify(store, noted=noted)
    if call.json:
        output.document("audit_verified", verified)
    else:
        output.show(*(Text(fault.what, style="bold red") for fault in verified.faults))
        output.show(f"{verified.checked:,} acts, {'as they were written' if verified.intact else 'BROKEN'}.")
        output.show(*([f"head {verified.head}"] if verified.head else []))
    if not verified.intact:
        raise click.exceptions.Exit(Exit.FINDINGS)
