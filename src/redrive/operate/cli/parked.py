"""What `dead`, `held`, `unrecorded` and `messages` share: the worklist, and one message with its timeline."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import click
from rich.console import RenderableType

from redrive.errors import NotFound
from redrive.message import MessageId, ParkReason
from redrive.operate import operations
from redrive.operate.actions.table import EXAMPLE_ID
from redrive.operate.cli import output
from redrive.operate.cli.context import Call, as_message_id, example, filter_options, narrowed, store_command
from redrive.operate.cli.message_page import message_page
from redrive.operate.cli.output import Column
from redrive.operate.cli.paging import page_options, show_page
from redrive.operate.cli.selecting import parked_filter
from redrive.store.reads.models import ParkedPosition, ParkedRecord
from redrive.store.runtime.postgres import PostgresStore

_COLUMNS: Final = (
    Column("id"),
    *output.growing("destination", "kind", "error class"),
    Column("attempts", "right", of="attempt"),
    output.since("parked", "parked_at"),
    Column("text", grow=True),
)


def add_list(group: click.Group, reason: ParkReason, words: str) -> None:
    @group.command("list", help=words, epilog=example(f"redrive {reason} list --destination erp"))
    @filter_options("destination", "error_class", "kind", "tenant", "group")
    @page_options("--before", ParkedPosition)
    @store_command
    async def list_(call: Call, store: PostgresStore, group: str | None, **wanted: Any) -> None:
        page = await operations.list_parked(store, await parked_filter(store, reason, group=group, **wanted))
        waits = " matches." if group or narrowed(wanted) else ": nothing waits for you here."
        show_page(call, "parked", page, _COLUMNS, nothing=f"No {reason} message{waits}")


def worklist(records: Sequence[ParkedRecord], now: datetime) -> RenderableType:
    return output.records(_COLUMNS, records, now)


def add_show(group: click.Group, noun: str, words: str) -> None:
    """Of `dead`, `held` and `unrecorded` only what is parked so."""

    @group.command("show", help=words, epilog=example(f"redrive {noun} show {EXAMPLE_ID}"))
    @click.argument("message_id", metavar="ID", type=as_message_id)
    @click.option("--payload", is_flag=True, help="Also headers and payload. The audit does not record this reading.")
    @store_command
    async def show(call: Call, store: PostgresStore, message_id: MessageId, payload: bool) -> None:
        details = await operations.show_message(store, message_id, payload=payload)
        place = details.parked.reason.value if details.parked else details.view.state
        if noun != "messages" and place != noun:
            raise NotFound(f"Message {message_id} is {place}, not {noun}.", next=f"redrive messages show {message_id}")
        if call.json:
            output.document("message", details)
        else:
            output.show(*message_page(details))


def add_parked(group: click.Group, reason: ParkReason, title: str) -> None:
    add_list(group, reason, f"{title}, latest first.")
    add_show(group, reason.value, "One record: why it is here, and every attempt so far.")
