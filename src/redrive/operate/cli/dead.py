"""`redrive dead`: dead letters, which could not be delivered, and their way back."""

import difflib
import json
from collections.abc import Sequence
from typing import Any, Final

import click
from rich.text import Text

from redrive.message import MessageId, ParkReason
from redrive.operate.actions.model import Noun
from redrive.operate.actions.table import find
from redrive.operate.cli import acts, output, parked, replay, selecting
from redrive.operate.cli.context import Call, store_command
from redrive.operate.cli.selecting import selection
from redrive.operate.desk import workflow
from redrive.operate.sanitize import one_line
from redrive.store.runtime.postgres import PostgresStore
from redrive.who import Who

_COLOURS: Final = {"+": "green", "-": "red", "@": "cyan"}


@click.group()
def command() -> None:
    """Dead letters: messages that could not be delivered, and why.

    Their way back: triage (say what the cause was), remediate (say what was done about it) or edit (the payload),
    validate (a relay looks whether it could be sent), replay, verify. Or discard, or ignore.
    """


parked.add_parked(command, ParkReason.DEAD, "Dead letters")
acts.add_actions(command, "dead", but=("edit", "replay"))
command.add_command(replay.create_command("dead"))
EDIT: Final = find(Noun.DEAD, "edit")


@command.command(**acts.described(EDIT, "dead"))
@selection
@acts.options(EDIT)
@click.option("--approve", is_flag=True, help="Approve the payload that another person proposed for one message.")
@acts.confirmed
@acts.dry_run
@acts.why
@store_command
async def edit(
    call: Call, store: PostgresStore, patch: Any, approve: bool, yes: bool, dry_run: bool, who: Who, **values: Any
) -> None:
    chosen = selecting.split(values)
    if approve == (patch is not None):
        raise click.UsageError("Give --patch, or --approve what was proposed; one of the two.")
    ids = await selecting.selected(store, *chosen)
    if approve:
        if len(ids) != 1:
            raise click.UsageError("--approve goes with one message.")
        await _approve(call, store, ids[0], who, yes=yes, dry_run=dry_run)
    elif dry_run:
        await _show_patch(call, store, ids, patch)
    else:
        acts.report(call, EDIT, who, await EDIT.call(store, ids, who, patch=patch), shown=acts.SHOWN_MAX)


async def _approve(call: Call, store: PostgresStore, id_: MessageId, who: Who, *, yes: bool, dry_run: bool) -> None:
    before, proposed = await workflow.proposal(store, id_)
    if dry_run and call.json:
        output.document("patch", {"id": id_, "messages": 1, "before": before, "after": proposed.body})
        return
    if not call.json:
        _show_diff(before, proposed.body)
    output.note(f"Proposed by {one_line(proposed.asked_by)}: {one_line(proposed.reason)}")
    if dry_run:
        output.note("Dry run: nothing was changed.")
        return
    if not yes:
        acts.confirm("Approve this payload?", what="--approve")
    acts.report(call, EDIT, who, [await workflow.approve(store, id_, proposed, who)])


async def _show_patch(call: Call, store: PostgresStore, ids: Sequence[MessageId], patch: Any) -> None:
    before, after = await workflow.preview(store, ids[0], patch)
    if call.json:
        output.document("patch", {"id": ids[0], "messages": len(ids), "before": before, "after": after})
        return
    _show_diff(before, after)
    rest = f"; {len(ids) - 1:,} more would be changed by the same patch" if len(ids) > 1 else ""
    output.note(f"Dry run: nothing was changed. This is {ids[0]}{rest}.")


def _show_diff(before: bytes, after: bytes) -> None:
    old, new = (json.dumps(json.loads(body), indent=2).splitlines() for body in (before, after))
    for line in difflib.unified_diff(old, new, "before", "after", n=2, lineterm=""):
        output.show(Text(line, style=_COLOURS.get(line[0], "")))
