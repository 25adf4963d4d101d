"""`redrive messages`: every message, whatever its state."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import click

from redrive.errors import NotFound
from redrive.message import MessageId, ParkReason
from redrive.operate import operations
from redrive.operate.cli import acts, output
from redrive.operate.cli.context import MESSAGE_ID, Call, checked, example, narrowed, store_command
from redrive.operate.cli.message_page import message_page
from redrive.operate.cli.output import Column
from redrive.operate.desk import workflow
from redrive.operate.desk.workflow import Who
from redrive.operate.operations import Act, Request
from redrive.store.reads.messages import STATES
from redrive.store.reads.models import LIMIT_MAX, MessageFilter, MessageView, ParkedFilter
from redrive.store.runtime.postgres import PostgresStore

_COLUMNS: Final = (
    Column("id"),
    Column("state"),
    Column("destination", grow=True),
    Column("kind", grow=True),
    Column("key", grow=True),
    Column("attempts", "right"),
    Column("due"),
    Column("created"),
)


@click.group()
def command() -> None:
    """List, show, cancel and requeue messages."""


@command.command(
    "list",
    epilog=example(
        "redrive messages list --state pending --destination erp",
        "redrive messages list --key order:4711 --json",
    ),
)
@click.option("--state", type=click.Choice(STATES), help="Only messages in this state.")
@click.option("--destination", help="Only messages for this destination.")
@click.option("--tenant", help="Only messages of this tenant.")
@click.option("--kind", help="Only messages of this kind.")
@click.option("--key", help="The one message with this idempotency key (of --tenant, or of `default`).")
@click.option("--before", type=MESSAGE_ID, help="Go on behind this message; each page says with which.")
@click.option("--limit", type=click.IntRange(1, LIMIT_MAX), default=50, show_default=True, help="Rows of a page.")
@store_command
async def list_(call: Call, store: PostgresStore, **wanted: Any) -> None:
    """Messages, newest first.

    A search looks at the newest 100,000 messages of the state that is asked for, and says where to go on.
    """
    page = await operations.list_messages(store, MessageFilter(**wanted))
    if call.json:
        output.document("messages", {"items": page.rows, "next": page.next, "looked_at": page.looked_at})
        return
    if page.rows:
        output.show(output.table(_COLUMNS, [_row(view, page.at) for view in page.rows]))
    else:
        output.note("No message matches." if narrowed(wanted) else "Nothing has been enqueued yet.")
    if page.looked_at:
        output.note(f"Looked at the newest {page.looked_at:,} only.")
    if page.next:
        output.note(f"More: the same with --before {page.next}")


def _row(view: MessageView, now: datetime) -> tuple[object, ...]:
    return (
        view.id,
        output.state(view.state, view.detail),
        view.destination,
        view.kind or "–",
        view.key or "–",
        view.attempt,
        output.until(view.due_at, now),
        output.ago(view.created_at, now),
    )


@command.command("show", epilog=example("redrive messages show 0199b2c4-7d1e-7a30-9c57-3f0a1b2c3d4e"))
@click.argument("message_id", metavar="ID", type=MESSAGE_ID)
@click.option("--payload", is_flag=True, help="Also headers and payload. Reading them is not yet kept in the audit.")
@store_command
async def show(call: Call, store: PostgresStore, message_id: MessageId, payload: bool) -> None:
    """One message: its envelope, where it is, and every attempt so far."""
    details = await operations.show_message(store, message_id, payload=payload)
    if call.json:
        output.document("message", {"message": details})
    else:
        output.show(*message_page(details))


@command.command(
    "cancel", epilog=example("redrive messages cancel 0199b2c4-7d1e-7a30-9c57-3f0a1b2c3d4e --reason 'order withdrawn'")
)
@acts.message_ids()
@acts.dry_run
@acts.why
@store_command
async def cancel(
    call: Call, store: PostgresStore, ids: tuple[MessageId, ...], dry_run: bool, actor: str, reason: str
) -> None:
    """No further attempt of these messages.

    What is in flight ends as it ends, and the answer says so. A parked message is discarded instead.
    """
    request = Request(act=Act.CANCEL, actor=actor, reason=reason)
    await acts.carry_out(call, store, request, ids, only_look=dry_run)


SELECTORS: Final = ("destination", "error_class", "kind", "tenant")


def _ids_or_filter(values: Mapping[str, Any]) -> None:
    """One of both has to be there, and not both."""
    if bool(values["ids"]) == any(values[name] is not None for name in SELECTORS):
        raise click.UsageError(
            "Name messages by ID, or select them by --destination, --error-class, --kind or --tenant."
        )


@command.command(
    "requeue",
    epilog=example(
        "redrive messages requeue 0199b2c4-7d1e-7a30-9c57-3f0a1b2c3d4e --reason 'erp is back'",
        "redrive messages requeue --destination erp --error-class HTTP_409 --dry-run --reason 'price list fixed'",
    ),
)
@acts.message_ids(required=False)
@click.option("--destination", help="All dead letters of this destination.")
@click.option("--error-class", help="All dead letters of this error class.")
@click.option("--kind", help="All dead letters of this kind.")
@click.option("--tenant", help="All dead letters of this tenant.")
@click.option(
    "--limit", type=click.IntRange(1, LIMIT_MAX), default=LIMIT_MAX, show_default=True, help="At most so many."
)
@click.option("--stage", help="Start at this stage instead of the one that failed.")
@click.option(
    "--out-of-order", is_flag=True, help="Also messages whose ordering key went on: before all of it that still wait."
)
@acts.confirmed
@acts.dry_run
@acts.why
@checked(_ids_or_filter)
@store_command
async def requeue(
    call: Call,
    store: PostgresStore,
    ids: tuple[MessageId, ...],
    limit: int,
    stage: str | None,
    out_of_order: bool,
    yes: bool,
    dry_run: bool,
    actor: str,
    reason: str,
    **chosen: Any,
) -> None:
    """Send dead letters again: these, or those that a filter selects.

    Same id, key and token; a fresh budget. What a filter selected is shown and asked about first. A message of an
    ordering key that has gone on without it needs --out-of-order; the refusal says how many later ones went out.
    """
    by_filter = not ids
    if by_filter:
        ids = tuple(await operations.find_dead(store, ParkedFilter(reason=ParkReason.DEAD, limit=limit, **chosen)))
        if not ids:
            raise NotFound("No dead letter matches.", next="redrive dead list")
        output.note(
            f"The filter selects {len(ids):,} dead letter{'' if len(ids) == 1 else 's'}" + _at_most(len(ids), limit)
        )
    request = Request(act=Act.REQUEUE, actor=actor, reason=reason, stage=stage, out_of_order=out_of_order)
    await acts.carry_out(call, store, request, ids, only_look=dry_run, ask=by_filter and not yes)


def _at_most(number: int, limit: int) -> str:
    return f" (no more than --limit {limit} at a time; run it again for the rest)." if number == limit else "."


@command.command(
    "copy",
    epilog=example(
        "redrive messages copy 0199b2c4-7d1e-7a30-9c57-3f0a1b2c3d4e --key order:7:again --reason 'discarded by mistake'"
    ),
)
@click.argument("message_id", metavar="ID", type=MESSAGE_ID)
@click.option("--key", required=True, help="The idempotency key of the copy.")
@acts.why
@store_command
async def copy(call: Call, store: PostgresStore, message_id: MessageId, key: str, actor: str, reason: str) -> None:
    """Enqueue a new message with what a discarded one had. What is discarded stays discarded."""
    copied = await workflow.copy(store, message_id, key, Who(actor=actor, reason=reason))
    if call.json:
        output.document("copy", {"id": copied, "of": message_id, "key": key, "actor": actor, "reason": reason})
    else:
        output.show(output.pairs([("copy", copied), ("of", message_id)]))
