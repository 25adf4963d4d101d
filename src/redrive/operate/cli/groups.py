"""`redrive groups`: failures by their cause, with the status, owner and note that operators set."""

from dataclasses import asdict
from typing import Any, Final

import click
from rich.text import Text

from redrive.operate.actions.model import Action
from redrive.operate.actions.table import EXAMPLE_GROUP, MARKS
from redrive.operate.cli import acts, output, parked
from redrive.operate.cli.context import Call, example, filter_options, narrowed, store_command
from redrive.operate.cli.message_page import heading
from redrive.operate.cli.output import Column
from redrive.operate.cli.paging import page_options, show_page
from redrive.operate.desk import groups
from redrive.operate.desk.groups import GroupDetails
from redrive.store.reads.models import GroupFilter, GroupPosition, GroupStatus
from redrive.store.runtime.postgres import PostgresStore
from redrive.who import Who

SHORT: Final = 12  # digits of an id that are shown in a list
_COLUMNS: Final = (
    Column("group", of=lambda group, _: group.id[:SHORT]),
    Column("status", of=lambda group, _: output.state(group.status.value)),
    *output.numbers(waiting="red", seen=""),
    *output.growing("destination", "kind", "error class"),
    output.since("first", "first_seen_at"),
    output.since("last", "last_seen_at"),
    Column("owner", grow=True),
    Column("text", grow=True, of="sample_text"),
)


@click.group()
def command() -> None:
    """Failure groups: failures of one cause, counted together.

    Every parked message belongs to one. What you say of a group changes nothing about its messages.
    """


@command.command("list", epilog=example("redrive groups list", "redrive groups list --all --destination erp"))
@click.option(
    "--status",
    "statuses",
    type=click.Choice([one.value for one in GroupStatus]),
    multiple=True,
    help="Only of this status.",
)
@click.option("--all", "everything", is_flag=True, help="Also what is resolved, snoozed or ignored.")
@filter_options("destination")
@page_options("--before", GroupPosition)
@store_command
async def list_(
    call: Call, store: PostgresStore, statuses: tuple[GroupStatus, ...], everything: bool, **wanted: Any
) -> None:
    """Failure groups that need a repair, latest failure first: those that are open, or failed again since resolved."""
    chosen = tuple(map(GroupStatus, statuses)) or (None if everything else groups.NEEDS_REPAIR)
    page = await groups.list_groups(store, GroupFilter(statuses=chosen, **wanted))
    quiet = statuses or everything or narrowed(wanted)
    nothing = "No failure group matches." if quiet else "No failure group needs you."
    show_page(call, "groups", page, _COLUMNS, nothing=nothing)


@command.command("show", epilog=example(f"redrive groups show {EXAMPLE_GROUP}"))
@click.argument("group_id", metavar="GROUP")
@store_command
async def show(call: Call, store: PostgresStore, group_id: str) -> None:
    """One group: its likely cause, what to do first, and its latest messages."""
    details = await groups.group_details(store, group_id)
    if call.json:
        output.document("group", details)
        return
    output.show(output.pairs(_pairs(details)))
    if details.messages:
        output.show(heading("Latest dead letters"), parked.worklist(details.messages, await store.now()))


def _pairs(details: GroupDetails) -> list[tuple[str, object]]:
    group = details.group
    until = f" until {output.moment(group.snoozed_until)}" if group.status is GroupStatus.SNOOZED else ""
    resolved = f" (resolved {output.moment(group.resolved_at)})" if group.status is GroupStatus.REGRESSED else ""
    last = output.moment(group.last_seen_at)
    rows: list[tuple[str, object]] = [
        ("group", group.id),
        ("status", Text.assemble(output.state(group.status.value), f"{until}{resolved}")),
        ("destination", group.destination),
        ("kind", group.kind),
        ("error class", group.error_class),
        ("text", group.sample_text),
        ("seen", f"{group.seen:,}, first {output.moment(group.first_seen_at)}, last {last}"),
        ("waiting", f"{group.waiting:,}"),
        ("likely cause", details.likely_cause),
        ("first", details.first),
        ("runbook", details.runbook),
    ]
    return [*rows, *((name, value) for name, value in (("owner", group.owner), ("note", group.note)) if value)]


def _add_mark(action: Action) -> None:
    @command.command(**acts.described(action, "groups"))
    @click.argument("group_id", metavar="GROUP")
    @acts.options(action)
    @acts.why
    @store_command
    async def say(call: Call, store: PostgresStore, group_id: str, who: Who, **given: Any) -> None:
        group = await action.call(store, group_id, who, **given)
        if call.json:
            output.document("group_mark", {"mark": action.name, **asdict(who), "group": group})
        else:
            output.show(output.records(_COLUMNS, [group], await store.now()))


for one in MARKS:
    _add_mark(one)
