"""`redrive replay`: many dead letters sent again, at a rate, and what became of each."""

from dataclasses import asdict
from typing import Any, Final
from uuid import UUID

import click

from redrive.operate.actions.model import Action
from redrive.operate.actions.table import EXAMPLE_REPLAY, REPLAY, STEERING
from redrive.operate.cli import acts, output, selecting
from redrive.operate.cli.context import Call, example, store_command
from redrive.operate.cli.message_page import heading
from redrive.operate.cli.output import Column
from redrive.operate.cli.paging import page_options, show_page
from redrive.operate.cli.selecting import selection
from redrive.operate.desk import replays
from redrive.operate.desk.replays import NewReplay, Plan
from redrive.operate.documents import listed, plain
from redrive.store.reads.models import ReplayItem, ReplayView
from redrive.store.runtime.postgres import PostgresStore
from redrive.who import Who

_LIST: Final = (
    Column("id"),
    Column("name", grow=True),
    Column("status", of=lambda replay, _: output.state(replay.status)),
    *output.numbers(messages="", waiting="", under_way="", delivered="green", failed="red", skipped=""),
    Column("by", grow=True, of="created_by"),
    output.since("created", "created_at"),
)
_ITEMS: Final = (
    Column("#", "right", of="position"),
    Column("message", of="message_id"),
    Column("outcome", of=lambda item, _: output.state(item.outcome)),
    Column("detail", grow=True, of=lambda item, _: _detail(item)),
    output.utc("sent", "requeued_at"),
    output.utc("ended", "finished_at"),
)


@click.group()
def command() -> None:
    """Replays: dead letters that are sent again, in their order, at a rate.

    A replay lives in the database and relays carry it out; the process that made it may end.
    """


def create_command(noun: str) -> click.Command:
    @selection
    @click.option("--token", "request_key", help="Asked for twice with the same one, it is one replay.")
    @acts.options(REPLAY)
    @acts.confirmed
    @acts.dry_run
    @acts.why
    @store_command
    async def create(call: Call, store: PostgresStore, yes: bool, dry_run: bool, who: Who, **values: Any) -> None:
        title = values.pop("name", None)
        ids, given = selecting.split(values)
        wanted = NewReplay(
            name=title or f"{who.actor}: {who.reason}"[: replays.NAME_MAX],
            filter=await selecting.replay_filter(store, ids, given),
            **asdict(who),
            **values,
        )
        if dry_run or (given and not yes):
            plan = await replays.plan(store, wanted)
            if dry_run and call.json:
                output.document("replay_plan", {"dry_run": True, **plain(replays.shown_plan(plan))})
            else:
                _show_plan(plan, dry_run=dry_run)
            if dry_run:
                return
            acts.confirm(f"Send {plan.verdicts.get('would', 0):,} messages again?", what="A replay by filter")
        _show_replay(call, await REPLAY.call(store, wanted))

    made: click.Command = click.command(**acts.described(REPLAY, noun))(create)
    if noun == "replay":
        made.params.insert(0, click.Argument(["name"], metavar="NAME"))
    return made


def _show_plan(plan: Plan, *, dry_run: bool) -> None:
    rows = [(f"{count:,}", replays.SKIPPED.get(word, "would be sent again")) for word, count in plan.verdicts.items()]
    table = output.table((Column("messages", "right"), Column("verdict")), rows)
    if dry_run:
        output.show(table)
        output.note("Dry run: nothing was changed." + (" It needs a second person." if plan.money else ""))
    else:
        output.stderr().print(table)
    if plan.late_successes:
        output.note(f"Of {plan.late_successes:,} that would be sent again a late answer says that they were delivered.")


command.add_command(create_command("replay"))


@command.command("list", epilog=example("redrive replay list", "redrive replay list --open"))
@click.option("--open", "only_open", is_flag=True, help="Only those with something left to do.")
@page_options("--before", UUID, rows=20)
@store_command
async def list_(call: Call, store: PostgresStore, only_open: bool, **page_of: Any) -> None:
    """Replays, latest first."""
    page = await replays.list_replays(store, finished=not only_open, **page_of)
    none_yet = "No replay is under way." if only_open else "There was no replay yet."
    show_page(call, "replays", page, _LIST, nothing="No further replay." if page_of["before"] else none_yet)


@command.command(
    "status",
    epilog=example(f"redrive replay status {EXAMPLE_REPLAY}", f"redrive replay status {EXAMPLE_REPLAY} --items"),
)
@click.argument("name", metavar="REPLAY")
@click.option("--items", is_flag=True, help="Also its messages, in the order in which they go.")
@click.option(
    "--outcome", help="With --items: only of this outcome, such as waiting, requeued, delivered, dead, skipped."
)
@page_options("--after", int, of="--items")
@store_command
async def status(
    call: Call, store: PostgresStore, name: str, items: bool, outcome: str | None, after: int | None, limit: int
) -> None:
    """How far a replay is: its id, or the latest of that name."""
    replay = await replays.find(store, name)
    page = await replays.list_items(store, replay.id, outcome=outcome, after=after or 0, limit=limit) if items else None
    if call.json:
        more = {} if page is None else plain(listed(page))
        output.document("replay", {**plain(replay), **more})
        return
    _show_replay(call, replay)
    if page is not None:
        output.show(heading("Messages"), output.records(_ITEMS, page.rows))
        if page.next:
            output.note(f"More: the same with --after {page.next}")


def _detail(item: ReplayItem) -> str:
    detail = replays.SKIPPED.get(item.detail or "", item.detail or "–")
    return f"verified by {item.verified_by}" if item.verified_by else detail


def _show_replay(call: Call, replay: ReplayView) -> None:
    if call.json:
        output.document("replay", replay)
        return
    why, stop_at = f" ({replay.stop_reason})" if replay.stop_reason else "", f"{replay.failure_ratio_max:.0%}"
    counts = ("waiting", "under_way", "delivered", "failed", "same_class", "skipped", "verified", "approved_by")
    rows: list[tuple[str, object]] = [
        ("replay", replay.id),
        ("name", replay.name),
        ("status", f"{replay.status}{why}"),
        ("made by", f"{replay.created_by}, {output.moment(replay.created_at)}: {replay.reason}"),
        ("filter", ", ".join(f"{name} {value}" for name, value in replay.filter.items())),
        ("rate", f"{replay.rate_per_second:g} per second, {replay.canary} first, stops above {stop_at}"),
        ("messages", replay.messages),
        *((output.words(name), getattr(replay, name)) for name in counts if getattr(replay, name)),
    ]
    output.show(output.pairs(rows))
    if replay.status == "waiting":
        output.note(f"Next: redrive replay approve {replay.id} --reason '…', by a second person")


def _add_steering(action: Action) -> None:
    @command.command(**acts.described(action, "replay"))
    @click.argument("name", metavar="REPLAY")
    @acts.dry_run
    @acts.why
    @store_command
    async def steer(call: Call, store: PostgresStore, name: str, dry_run: bool, who: Who) -> None:
        if dry_run:
            _show_replay(call, await replays.preview(store, name, action.name))
            output.note("Dry run: nothing was changed.")
        else:
            _show_replay(call, await action.call(store, name, who))


for one in STEERING:
    _add_steering(one)
