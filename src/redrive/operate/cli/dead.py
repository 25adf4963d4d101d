"""`redrive dead`: dead letters, which could not be delivered, and their way back."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from typing import Any, Final

import click
from rich.text import Text

from redrive.message import MessageId, ParkReason
from redrive.operate.actions.model import Noun
from redrive.operate.actions.results import ActResult, Outcome
from redrive.operate.actions.table import find
from redrive.operate.cli import acts, output, parked, replay, selecting
from redrive.operate.cli.context import Call, store_command
from redrive.operate.cli.selecting import selection
from redrive.operate.desk import workflow
from redrive.operate.sanitize import one_line
from redrive.store.runtime.postgres import PostgresStore
from redrive.who import Who

SHOWN_MAX: Final = 20  # messages that are listed one by one
_COLOURS: Final = {"+": "green", "-": "red", "@": "cyan"}


@click.group()
def command() -> None:
    """Dead letters: messages that could not be delivered, and why.

    Their way back: triage (say what the cause was), remediate (say what was done about it, or edit the payload),
    validate (a relay looks whether it could be sent), replay, verify. Or discard, or ignore.
    """


parked.add_list(command, ParkReason.DEAD, "Dead letters, latest first.")
parked.add_show(command, ParkReason.DEAD)
acts.add_actions(command, "dead", but=("remediate", "edit", "replay"))
command.add_command(replay.create_command("dead"))
REMEDIATE: Final = find(Noun.DEAD, "remediate")
EDIT: Final = find(Noun.DEAD, "edit")


@command.command(**acts.described(REMEDIATE, "dead"))
@selection
@acts.options(REMEDIATE)
@acts.options(EDIT)
@click.option("--approve", is_flag=True, help="Approve the payload that another person proposed for one message.")
@acts.confirmed
@acts.dry_run
@acts.why
@store_command
async def remediate(
    call: Call,
    store: PostgresStore,
    evidence: str | None,
    ticket: str | None,
    patch: Any,
    approve: bool,
    yes: bool,
    dry_run: bool,
    actor: str,
    reason: str,
    **values: Any,
) -> None:
    chosen = selecting.split(values)
    if patch is None and evidence is None and ticket is None and not approve:
        raise click.UsageError("Say what was done: --evidence, --ticket or --patch; or --approve what was proposed.")
    ids = await selecting.selected(store, *chosen)
    if approve:
        if patch is not None or evidence is not None or ticket is not None or len(ids) != 1:
            raise click.UsageError("--approve goes with one message, and with nothing else.")
        await _approve(call, store, ids[0], Who(actor=actor, reason=reason), yes=yes, dry_run=dry_run)
        return
    if dry_run:
        await _show_patch(call, store, ids, patch)
        return
    who = Who(actor=actor, reason=reason)
    results: list[ActResult] = []
    if patch is not None:
        results = await EDIT.call(store, ids, who, patch=patch)
        ids = [result.id for result in results if result.outcome is Outcome.DONE]
    if ids and (evidence is not None or ticket is not None):
        said = await REMEDIATE.call(store, ids, who, evidence=evidence, ticket=ticket)
        results = [*(one for one in results if one.outcome is not Outcome.DONE), *said]
    acts.report_step(call, REMEDIATE, who, results)


async def _approve(call: Call, store: PostgresStore, id_: MessageId, who: Who, *, yes: bool, dry_run: bool) -> None:
    """The change that another person proposed; then, if the answer is yes, the new version."""
    before, proposed = await workflow.proposal(store, id_)
    if dry_run and call.json:
        output.document("patch", {"id": id_, "messages": 1, "before": before, "after": proposed.body})
        return
    if not call.json:
        output.show(*(Text(line, style=_COLOURS.get(line[0], "")) for line in _diff(before, proposed.body)))
    output.note(f"Proposed by {one_line(proposed.asked_by)}: {one_line(proposed.reason)}")
    if dry_run:
        output.note("Dry run: nothing was changed.")
        return
    if not yes:
        acts.confirm("Approve this payload?", what="--approve")
    acts.report_step(call, REMEDIATE, who, [await workflow.approve(store, id_, proposed, who)])


async def _show_patch(call: Call, store: PostgresStore, ids: Sequence[MessageId], patch: Any) -> None:
    if patch is None:
        raise click.UsageError("There is nothing to show: --dry-run goes with --patch.")
    before, after = await workflow.preview(store, ids[0], patch)
    if call.json:
        output.document("patch", {"id": ids[0], "messages": len(ids), "before": before, "after": after})
        return
    output.show(*(Text(line, style=_COLOURS.get(line[0], "")) for line in _diff(before, after)))
    rest = f"; {len(ids) - 1:,} more would be changed by the same patch" if len(ids) > 1 else ""
    output.note(f"Dry run: nothing was changed. This is {ids[0]}{rest}.")


def _diff(before: bytes, after: bytes) -> list[str]:
    """Line by line, as of a file: every value of a payload is on a line of its own."""
    old, new = (json.dumps(json.loads(body), indent=2).splitlines() for body in (before, after))
    return list(difflib.unified_diff(old, new, "before", "after", n=2, lineterm=""))
