"""`redrive destinations`: where messages go, and whether anything goes there now."""

from __future__ import annotations

from typing import Final

import click
from rich.text import Text

from redrive.operate import operations
from redrive.operate.cli import acts, output
from redrive.operate.cli.context import Call, example, store_command
from redrive.operate.cli.output import Column
from redrive.operate.plain import one_line
from redrive.ports import Backlog, DestinationState
from redrive.store.postgres import PostgresStore

_COLUMNS: Final = (
    Column("destination", grow=True),
    Column("state"),
    Column("handled"),
    Column("pending", "right"),
    Column("leased", "right"),
    Column("parked", "right"),
    Column("paused since"),
    Column("by", grow=True),
    Column("reason", grow=True),
)


@click.group()
def command() -> None:
    """List, pause and resume destinations."""


@command.command("list", epilog=example("redrive destinations list"))
@store_command
async def list_(call: Call, store: PostgresStore) -> None:
    """Every destination that was registered, was paused, or has open messages."""
    status = await operations.status(store)
    known = {one.name: one for one in await operations.list_destinations(store)}
    if call.json:
        items = [_item(backlog, known.get(backlog.destination)) for backlog in status.backlog]
        output.document("destinations", {"at": status.at, "items": items})
        return
    if status.backlog:
        rows = [_row(backlog, known.get(backlog.destination)) for backlog in status.backlog]
        output.show(output.table(_COLUMNS, rows))
    else:
        output.note("No destination yet: one appears when a relay registers it or a message names it.")


def _item(backlog: Backlog, known: DestinationState | None) -> dict[str, object]:
    return {
        "name": backlog.destination,
        "paused": backlog.paused,
        "pause_reason": backlog.pause_reason,
        "paused_by": known and known.paused_by,
        "paused_at": known and known.paused_at,
        "handled": backlog.handled,
        "pending": backlog.pending,
        "leased": backlog.leased,
        "parked": backlog.parked,
    }


def _row(backlog: Backlog, known: DestinationState | None) -> tuple[object, ...]:
    return (
        backlog.destination,
        output.state("paused") if backlog.paused else "open",
        "yes" if backlog.handled else "NO",
        output.number(backlog.pending),
        output.number(backlog.leased),
        output.number(sum(backlog.parked.values()), style="red"),
        output.moment(known.paused_at if known else None),
        (known and known.paused_by) or "–",
        backlog.pause_reason or "–",
    )


@command.command("pause", epilog=example("redrive destinations pause erp --reason 'maintenance until 18:00'"))
@click.argument("name")
@click.option("--unseen", is_flag=True, help="Also a destination that nobody has used yet.")
@acts.dry_run
@acts.why
@store_command
async def pause(
    call: Call, store: PostgresStore, name: str, unseen: bool, dry_run: bool, actor: str, reason: str
) -> None:
    """Send nothing there for now. What runs ends; messages wait and spend none of their attempts."""
    if not unseen:
        await operations.require_known(store, name)
    changed = None if dry_run else await store.pause(name, actor=actor, reason=reason)
    _say(call, name, "pause", changed, already="was paused already; nothing was changed")


@command.command("resume", epilog=example("redrive destinations resume erp --reason 'erp 2.4 is live'"))
@click.argument("name")
@acts.dry_run
@acts.why
@store_command
async def resume(call: Call, store: PostgresStore, name: str, dry_run: bool, actor: str, reason: str) -> None:
    """Send there again, beginning with what is due."""
    await operations.require_known(store, name)
    changed = None if dry_run else await store.resume(name, actor=actor, reason=reason)
    _say(call, name, "resume", changed, already="was not paused; nothing was changed")


def _say(call: Call, name: str, act: str, changed: bool | None, *, already: str) -> None:
    """changed: None for a dry run."""
    if call.json:
        values = {"name": name, "act": act, "dry_run": changed is None, "changed": bool(changed)}
        output.document("destination", values)
        return
    if changed is None:
        output.show(Text(f"Dry run: would {act} {one_line(name)}. Nothing was changed."))
    else:
        output.show(Text(f"{one_line(name)} {f'is {act}d' if changed else already}."))
