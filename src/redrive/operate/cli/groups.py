"""`redrive groups`: failures by their cause, and what people say of them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import click
from rich.text import Text

from redrive.message import ParkReason
from redrive.operate import operations
from redrive.operate.actions.model import Action
from redrive.operate.actions.table import EXAMPLE_GROUP, MARKS
from redrive.operate.cli import acts, output, parked
from redrive.operate.cli.context import Call, example, narrowed, store_command
from redrive.operate.cli.message_page import heading
from redrive.operate.cli.output import Column
from redrive.operate.desk import groups
from redrive.operate.desk.causes import Advice
from redrive.store.reads.models import LIMIT_MAX, GroupFilter, GroupPosition, GroupStatus, GroupView, ParkedFilter
from redrive.store.runtime.postgres import PostgresStore
from redrive.who import Who

SHORT: Final = 12  # digits of an id that are shown in a list
SAMPLES: Final = 5  # messages that are shown of a group
_COLUMNS: Final = (
    Column("group"),
    Column("status"),
    Column("waiting", "right"),
    Column("seen", "right"),
    Column("destination", grow=True),
    Column("kind", grow=True),
    Column("error class", grow=True),
    Column("first"),
    Column("last"),
    Column("owner", grow=True),
    Column("text", grow=True),
)


@click.group()
def command() -> None:
    """Failure groups: failures of one cause, counted together.

    Every parked message belongs to one. What you say of a group changes nothing about its messages.
    """


class PositionType(click.ParamType[GroupPosition]):
    """A position between two pages, as the page before printed it."""

    name = "position"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> GroupPosition:
        """Moment and fingerprint, joined by a slash."""
        moment, _, fingerprint = str(value).partition("/")
        try:
            position = GroupPosition(datetime.fromisoformat(moment), bytes.fromhex(fingerprint))
        except ValueError:
            position = None
        if position is None or position.last_seen_at.tzinfo is None:
            self.fail(f"{value!r} is no position; use the one that a page ends with.", param, ctx)
        return position


@command.command("list", epilog=example("redrive groups list", "redrive groups list --all --destination erp"))
@click.option(
    "--status",
    "statuses",
    type=click.Choice([one.value for one in GroupStatus]),
    multiple=True,
    help="Only of this status.",
)
@click.option("--all", "everything", is_flag=True, help="Also what is resolved, snoozed or ignored.")
@click.option("--destination", help="Only of this destination.")
@click.option("--before", type=PositionType(), help="Go on behind this position; each page says with which.")
@click.option("--limit", type=click.IntRange(1, LIMIT_MAX), default=50, show_default=True, help="Rows of a page.")
@store_command
async def list_(
    call: Call, store: PostgresStore, statuses: tuple[GroupStatus, ...], everything: bool, **wanted: Any
) -> None:
    """Failure groups that need a repair, latest failure first: those that are open, or failed again since resolved."""
    chosen = tuple(map(GroupStatus, statuses)) or (None if everything else groups.NEEDS_SOMEBODY)
    page = await groups.list_groups(store, GroupFilter(statuses=chosen, **wanted))
    following = page.next and f"{output.plain(page.next.last_seen_at)}/{page.next.fingerprint.hex()}"
    if call.json:
        output.document("groups", {"items": [_item(group) for group in page.rows], "next": following})
        return
    if page.rows:
        output.show(output.table(_COLUMNS, [_row(group, page.at) for group in page.rows]))
    else:
        quiet = statuses or everything or narrowed(wanted)
        output.note("No failure group matches." if quiet else "No failure group needs you.")
    if following:
        output.note(f"More: the same with --before {following}")


def _item(group: GroupView) -> dict[str, object]:
    plain: dict[str, object] = output.plain(group)
    return {**plain, "fingerprint": group.id}


def _row(group: GroupView, now: datetime) -> tuple[object, ...]:
    return (
        group.id[:SHORT],
        output.state(group.status.value),
        output.number(group.waiting, style="red"),
        output.number(group.seen),
        group.destination,
        group.kind or "–",
        group.error_class,
        output.ago(group.first_seen_at, now),
        output.ago(group.last_seen_at, now),
        group.owner or "–",
        group.sample_text or "–",
    )


@command.command("show", epilog=example(f"redrive groups show {EXAMPLE_GROUP}"))
@click.argument("group_id", metavar="GROUP")
@store_command
async def show(call: Call, store: PostgresStore, group_id: str) -> None:
    """One group: its likely cause, what to do first, and its latest messages."""
    group, advice = await groups.show_group(store, group_id)
    wanted = ParkedFilter(reason=ParkReason.DEAD, failure_group=group.fingerprint, limit=SAMPLES)
    page = await operations.list_parked(store, wanted)
    if call.json:
        said = {"likely_cause": advice.cause, "first": advice.first, "runbook": advice.runbook}
        output.document("group", {"group": {**_item(group), **said}, "messages": page.rows})
        return
    output.show(output.pairs(_pairs(group, advice)))
    if page.rows:
        output.show(heading("Latest dead letters"), parked.worklist(page.rows, page.at))


def _pairs(group: GroupView, advice: Advice) -> list[tuple[str, object]]:
    until = f" until {output.moment(group.snoozed_until)}" if group.status is GroupStatus.SNOOZED else ""
    resolved = f" (resolved {output.moment(group.resolved_at)})" if group.status is GroupStatus.REGRESSED else ""
    rows: list[tuple[str, object]] = [
        ("group", group.id),
        ("status", Text.assemble(output.state(group.status.value), f"{until}{resolved}")),
        ("destination", group.destination),
        ("kind", group.kind or "–"),
        ("error class", group.error_class),
        ("text", group.sample_text or "–"),
        (
            "seen",
            f"{group.seen:,}, first {output.moment(group.first_seen_at)}, last {output.moment(group.last_seen_at)}",
        ),
        ("waiting", f"{group.waiting:,}"),
        ("likely cause", advice.cause.value),
        ("first", advice.first),
        ("runbook", advice.runbook),
    ]
    return [*rows, *((name, value) for name, value in (("owner", group.owner), ("note", group.note)) if value)]


def _add_mark(action: Action) -> None:
    """A command that says something of a group."""

    @command.command(**acts.described(action, "groups"))
    @click.argument("group_id", metavar="GROUP")
    @acts.options(action)
    @acts.why
    @store_command
    async def say(call: Call, store: PostgresStore, group_id: str, actor: str, reason: str, **given: Any) -> None:
        group = await action.call(store, group_id, Who(actor=actor, reason=reason), **given)
        if call.json:
            output.document(
                "group_mark", {"mark": action.name, "actor": actor, "reason": reason, "group": _item(group)}
            )
        else:
            output.show(output.table(_COLUMNS, [_row(group, await store.now())]))


for one in MARKS:
    _add_mark(one)
