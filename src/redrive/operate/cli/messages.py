"""`redrive messages`: every message, whatever its state."""

from dataclasses import asdict
from typing import Any, Final

import click

from redrive.message import MessageId
from redrive.operate import operations
from redrive.operate.actions.table import COPY
from redrive.operate.cli import acts, output, parked
from redrive.operate.cli.context import Call, as_message_id, example, filter_options, narrowed, store_command
from redrive.operate.cli.output import Column
from redrive.operate.cli.paging import page_options, show_page
from redrive.store.reads.messages import STATES
from redrive.store.reads.models import MessageFilter
from redrive.store.runtime.postgres import PostgresStore
from redrive.who import Who

_COLUMNS: Final = (
    Column("id"),
    Column("state", of=lambda view, _: output.state(view.state, view.detail)),
    *output.growing("destination", "kind", "key"),
    Column("attempts", "right", of="attempt"),
    Column("due", of=lambda view, at: output.until(view.due_at, at)),
    output.since("created", "created_at"),
)


@click.group()
def command() -> None:
    """List, show, cancel, requeue and copy messages."""


@command.command(
    "list",
    epilog=example(
        "redrive messages list --state pending --destination erp", "redrive messages list --key order:4711 --json"
    ),
)
@click.option("--state", type=click.Choice(STATES), help="Only messages in this state.")
@filter_options("destination", "tenant", "kind")
@click.option("--key", help="The one message with this idempotency key (of --tenant, or of `default`).")
@page_options("--before", MessageId)
@store_command
async def list_(call: Call, store: PostgresStore, **wanted: Any) -> None:
    """Messages, newest first.

    A search looks at the newest 100,000 messages of the state that is asked for, and says where to go on.
    """
    page = await operations.list_messages(store, MessageFilter(**wanted))
    nothing = "No message matches." if narrowed(wanted) else "Nothing has been enqueued yet."
    looked = "Looked at the newest {:,} only."
    show_page(call, "messages", page, _COLUMNS, nothing=nothing, looked=looked)


parked.add_show(command, "messages", "One message: its envelope, where it is, and every attempt so far.")
acts.add_actions(command, "messages")


@command.command(**acts.described(COPY, "messages"))
@click.argument("message_id", metavar="ID", type=as_message_id)
@acts.options(COPY)
@acts.why
@store_command
async def copy(call: Call, store: PostgresStore, message_id: MessageId, key: str, who: Who) -> None:
    copied = await COPY.call(store, message_id, who, key=key)
    if call.json:
        output.document("copy", {"id": copied, "of": message_id, "key": key, **asdict(who)})
    else:
        output.show(output.pairs([("copy", copied), ("of", message_id)]))
