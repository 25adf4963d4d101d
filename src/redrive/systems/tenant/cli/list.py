"""`redrive tenant list`: events by where they are."""

from __future__ import annotations

from typing import get_args

import click

from redrive.kit.cli import Call, Column, example, output, store_command
from redrive.kit.database import Database
from redrive.systems.tenant import reads
from redrive.systems.tenant.cli.shared import tenant_option
from redrive.systems.tenant.documents import EventList

_COLUMNS = (
    Column("id"),
    Column("tenant"),
    Column("event type", grow=True),
    Column("state"),
    Column("failed", "right"),
    Column("created"),
    Column("last error", fold=True),
)


@click.command("list", epilog=example("redrive tenant list", "redrive tenant list --status failed --tenant acme"))
@tenant_option
@click.option(
    "--status",
    type=click.Choice(get_args(reads.Status)),
    default="pending",
    show_default=True,
    help="Events that are not processed yet, those of them that failed, or delivered ones.",
)
@click.option("--event-type", metavar="TYPE", help="Only events of this type.")
@click.option("--page", type=click.IntRange(1, 1000), default=1, show_default=True, help="Which page.")
@click.option("--page-size", type=click.IntRange(1, 200), default=50, show_default=True, help="Events on a page.")
@store_command
async def command(
    call: Call,
    store: Database,
    tenant: str | None,
    status: reads.Status,
    event_type: str | None,
    page: int,
    page_size: int,
) -> None:
    """Events, newest first: pending (not processed yet), failed (of those, what failed at least once) or processed."""
    found = await reads.list_events(
        store, status=status, tenant=tenant, event_type=event_type, page=page, page_size=page_size
    )
    if call.json:
        shown = EventList.of(found, page=page, page_size=page_size)
        output.document("outbox_events", shown.model_dump(mode="json", by_alias=True))
        return
    rows = [
        (
            one.id,
            one.tenant_id,
            one.event_type,
            "dead" if one.dead_letter else one.state,
            one.retry_count,
            output.short_moment(one.created_at),
            one.last_error_snippet or "–",
        )
        for one in found.items
    ]
    output.show(output.table(_COLUMNS, rows))
    more = " and more" if found.total_is_capped else ""
    output.note(f"Page {page}: {len(rows)} of {found.total}{more}.")
