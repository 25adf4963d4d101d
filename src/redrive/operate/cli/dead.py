"""`redrive dead`: dead letters, which could not be delivered, and their way back."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click
from rich.text import Text

from redrive.message import MessageId, ParkReason
from redrive.operate.cli import acts, output, parked, replay, selecting
from redrive.operate.cli.context import Call, example, store_command
from redrive.operate.cli.exit_codes import Exit
from redrive.operate.cli.selecting import selection
from redrive.operate.desk import workflow
from redrive.operate.desk.causes import Cause
from redrive.operate.desk.workflow import Who
from redrive.operate.operations import ActResult, Outcome
from redrive.operate.sanitize import one_line
from redrive.store.runtime.postgres import PostgresStore

SHOWN_MAX: Final = 20  # messages that are listed one by one
_ID: Final = parked.EXAMPLE_ID
_COLOURS: Final = {"+": "green", "-": "red", "@": "cyan"}


@click.group()
def command() -> None:
    """Dead letters: what could not be delivered, and why.

    Their way back: triage (say what the cause was), remediate (say what was done about it, or edit the payload),
    validate (a relay looks whether it could be sent), replay, verify. Or discard, or ignore.
    """


parked.add_list(command, ParkReason.DEAD, "Dead letters, latest first.")
parked.add_show(command, ParkReason.DEAD)
parked.add_discard(command, ParkReason.DEAD, "Close dead letters for good: they are never sent. This cannot be undone.")


@command.command(
    "triage", epilog=example("redrive dead triage --group 3f9a0c41d2e7 --cause data --reason 'no currency'")
)
@selection
@click.option("--cause", type=click.Choice([cause.value for cause in Cause]), required=True, help="Why it failed.")
@click.option("--owner", help="Who looks into it.")
@acts.why
@store_command
async def triage(
    call: Call, store: PostgresStore, cause: str, owner: str | None, actor: str, reason: str, **values: Any
) -> None:
    """Say what the cause was. It decides which evidence is needed before these can be sent again."""
    ids = await selecting.selected(store, *selecting.split(values))
    who = Who(actor=actor, reason=reason)
    _report(call, "triage", who, await workflow.triage(store, ids, Cause(cause), who, owner=owner))


def _patch(_: click.Context, __: click.Parameter, value: str | None) -> Any:
    """JSON itself, or @FILE."""
    if value is None:
        return None
    try:
        return json.loads(Path(value[1:]).read_text(encoding="utf-8") if value.startswith("@") else value)
    except (OSError, ValueError) as error:
        raise click.BadParameter(f"It is neither JSON nor @FILE with JSON ({type(error).__name__}).") from None


@command.command(
    "remediate",
    epilog=example(
        "redrive dead remediate --group 3f9a0c41d2e7 --evidence 'erp is up since 14:02' --reason 'INC-7'",
        """redrive dead remediate --group 3f9a0c41d2e7 --patch @currency.json --reason 'INC-7'""",
    ),
)
@selection
@click.option("--evidence", help="What was seen or done: the destination is up, release 2.4 is live.")
@click.option("--ticket", help="Where it is written down; for data that were corrected elsewhere.")
@click.option("--patch", callback=_patch, metavar="JSON|@FILE", help="Change the payload by a JSON Patch (RFC 6902).")
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
    """Say what was done about the cause, or change the payload.

    A changed payload is a new version of the same message, with a token of its own; the old one is kept. It is refused
    for a message that is in doubt: an earlier version may have had its effect. Needs a login that may read payloads.
    --dry-run with --patch shows the first payload before and after.

    Where the destination moves money, a changed payload is only proposed: a second person, an approver, sees the
    change and approves the very same payload with --approve.
    """
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
        results = await workflow.edit(store, ids, patch, who)
        ids = [result.id for result in results if result.outcome is Outcome.DONE]
    if ids and (evidence is not None or ticket is not None):
        said = await workflow.remediate(store, ids, who, evidence=evidence, ticket=ticket)
        results = [*(one for one in results if one.outcome is not Outcome.DONE), *said]
    _report(call, "remediate", who, results)


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
        if not acts.can_ask():
            raise click.UsageError("--approve needs --yes without a terminal (or --dry-run first).")
        if not click.confirm("Approve this payload?", err=True):
            output.note("Nothing was changed.")
            raise click.exceptions.Exit(Exit.FAILED)
    _report(call, "remediate", who, [await workflow.approve(store, id_, proposed, who)])


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


@command.command("validate", epilog=example("redrive dead validate --group 3f9a0c41d2e7 --reason 'INC-7'"))
@selection
@click.option("--wait", "seconds", type=click.FloatRange(0, 3600), default=30.0, show_default=True, help="Seconds.")
@acts.why
@store_command
async def validate(call: Call, store: PostgresStore, seconds: float, actor: str, reason: str, **values: Any) -> None:
    """Let a relay look whether they could be sent now: `validate`, and `lookup` where in doubt. Nothing is sent.

    Refused without the evidence that the cause needs.
    """
    ids = await selecting.selected(store, *selecting.split(values))
    who = Who(actor=actor, reason=reason)
    _report(call, "validate", who, await workflow.validate(store, ids, who, seconds=seconds))


command.add_command(replay.create_command("replay"))


@command.command("verify", epilog=example(f"redrive dead verify {_ID} --reason 'seen in the ERP, INC-7 closed'"))
@acts.message_ids()
@acts.why
@store_command
async def verify(call: Call, store: PostgresStore, ids: tuple[MessageId, ...], actor: str, reason: str) -> None:
    """Say that a replayed message has arrived, and close the matter. Refused unless it was delivered."""
    who = Who(actor=actor, reason=reason)
    _report(call, "verify", who, await workflow.verify(store, ids, who))


@command.command("ignore", epilog=example("redrive dead ignore --group 3f9a0c41d2e7 --reason 'test data'"))
@selection
@acts.why
@store_command
async def ignore(call: Call, store: PostgresStore, actor: str, reason: str, **values: Any) -> None:
    """Leave them parked without anybody having to look into them. `triage` takes that back."""
    ids = await selecting.selected(store, *selecting.split(values))
    who = Who(actor=actor, reason=reason)
    _report(call, "ignore", who, await workflow.ignore(store, ids, who))


def _report(call: Call, act: str, who: Who, results: Sequence[ActResult]) -> None:
    acts.report_steps(call, act, actor=who.actor, reason=who.reason, results=results, shown=SHOWN_MAX)
