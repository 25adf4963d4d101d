"""`redrive messages`: every message, whatever its state."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import click

from redrive.message import MessageId
from redrive.operate import operations
from redrive.operate.actions.model import Noun
from redrive.operate.actions.table import find
from redrive.operate.cli import acts, output
from redrive.operate.cli.context import MESSAGE_ID, Call, example, narrowed, store_command
from redrive.operate.cli.message_page import message_page
from redrive.operate.cli.output import Column
from redrive.operate.cli.paging import going_on
from redrive.operate.documents import listed
from redrive.store.reads.messages import STATES
from redrive.store.reads.models import LIMIT_MAX, MessageFilter, MessageView
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
    """List, show, cancel, requeue and copy messages."""


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
@going_on("--before", MessageId)
@click.option("--limit", type=click.IntRange(1, LIMIT_MAX), default=50, show_default=True, help="Rows of a page.")
@store_command
async def list_(call: Call, store: PostgresStore, **wanted: Any) -> None:
    """Messages, newest first.

    A search looks at the newest 100,000 messages of the state that is asked for, and says where to go on.
    """
    page = await operations.list_messages(store, MessageFilter(**wanted))
    if call.json:
        output.document("messages", listed(page))
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
        output.document("message", details)
    else:
        output.show(*message_page(details))


acts.add_actions(command, "messages")
COPY: Final = find(Noun.MESSAGE, "copy")


@command.command(**acts.described(COPY, "messages"))
@click.argument("message_id", metavar="ID", type=MESSAGE_ID)
@acts.options(COPY)
@acts.why
@store_command
async def copy(call: Call, store: PostgresStore, message_id: MessageId, key: str, actor: str, reason: str) -> None:
    copied = await COPY.call(store, message_id, actor=actor, reason=reason, key=key)
    if call.json:
        output.document("copy", {"id": copied, "of": message_id, "key": key, "actor": actor, "reason": reason})
    else:
        output.show(output.pairs([("copy", copied), ("of", message_id)]))
