"""What acts on messages share: reason and actor, dry run, confirmation, and the report of what became of each.

An act that cannot be undone, or that a filter chose the messages for, is asked about on a terminal and needs `--yes`
elsewhere. The report goes to stdout; if any message was refused or not found, the exit code says so.
"""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import click

from redrive.errors import ActRefused, NotFound
from redrive.message import MessageId
from redrive.operate import operations
from redrive.operate.cli import output
from redrive.operate.cli.context import MESSAGE_ID, Call
from redrive.operate.cli.exit_codes import Exit
from redrive.operate.cli.output import Column
from redrive.operate.cli.progress import bars
from redrive.operate.operations import ActResult, Outcome, Request
from redrive.operate.sanitize import one_line
from redrive.store.runtime.postgres import PostgresStore

REASON_MAX: Final = 500  # characters
ACTOR_MAX: Final = 100
SHOWN_MAX: Final = 20  # messages that are listed before a person is asked

Body = Callable[..., Any]


def user_name() -> str:
    """The operating system's user, who acts unless another is named."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def _words(limit: int) -> Callable[[click.Context, click.Parameter, str], str]:
    def check(_: click.Context, __: click.Parameter, value: str) -> str:
        words = value.strip()
        if not words or len(words) > limit or not words.isprintable():
            raise click.BadParameter(f"It must have 1 to {limit} printable characters; it has {len(words)}.")
        return words

    return check


def why(body: Body) -> Body:
    """--reason and --actor: every act is kept in the audit with both."""
    return click.option("--reason", required=True, callback=_words(REASON_MAX), help="Why; kept in the audit.")(
        _actor(body)
    )


def why_not_required(reason: str) -> Callable[[Body], Body]:
    """The same for an act that explains itself."""
    return lambda body: click.option(
        "--reason", default=reason, show_default=True, callback=_words(REASON_MAX), help="Why; kept in the audit."
    )(_actor(body))


def _actor(body: Body) -> Body:
    return click.option(
        "--actor",
        default=user_name,
        show_default="the operating system's user",
        callback=_words(ACTOR_MAX),
        help="Who acts; kept in the audit.",
    )(body)


def dry_run(body: Body) -> Body:
    """--dry-run."""
    return click.option("--dry-run", is_flag=True, help="Say what would be done; change nothing.")(body)


def confirmed(body: Body) -> Body:
    """--yes, for what is asked about."""
    return click.option("--yes", "-y", is_flag=True, help="Do not ask. Needed where there is no terminal.")(body)


def message_ids(*, required: bool = True) -> Callable[[Body], Body]:
    """One id or several."""
    return click.argument(
        "ids", metavar="ID..." if required else "[ID]...", nargs=-1, required=required, type=MESSAGE_ID
    )


async def carry_out(
    call: Call,
    store: PostgresStore,
    request: Request,
    ids: Sequence[MessageId],
    *,
    only_look: bool = False,
    ask: bool = False,
) -> None:
    """Preview, ask if need be, act, report."""
    ids = list(dict.fromkeys(ids))
    if only_look or ask:
        previewed = await operations.preview(store, request, ids)
        if only_look:
            report(call, request, previewed, only_look=True)
            return
        _ask(request, previewed)
    with bars() as progress:
        results = await operations.perform(store, request, ids, progress=progress)
    report(call, request, results)


def can_ask() -> bool:
    """Whether a person sits at a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def _ask(request: Request, previewed: Sequence[ActResult]) -> None:
    """Show what would be done and wait for a yes."""
    fitting = [result for result in previewed if result.outcome is Outcome.WOULD]
    if not fitting:
        return
    if not can_ask():
        raise click.UsageError(
            f"{request.act} of {_messages(len(fitting))} needs --yes where nobody can be asked (or --dry-run first)."
        )
    for result in fitting[:SHOWN_MAX]:
        output.note(f"  {result.id}  {one_line(result.destination)}: {result.detail}")
    if len(fitting) > SHOWN_MAX:
        output.note(f"  and {len(fitting) - SHOWN_MAX:,} more")
    if not click.confirm(f"{request.act.capitalize()} {_messages(len(fitting))}?", err=True):
        output.note("Nothing was changed.")
        raise click.exceptions.Exit(Exit.FAILED)


def report(call: Call, request: Request, results: Sequence[ActResult], *, only_look: bool = False) -> None:
    """What became of each message; raises the sum of what did not work."""
    head = {"act": request.act, "dry_run": only_look, "actor": request.actor, "reason": request.reason}
    _print(call, head, results, shown=len(results))
    if only_look:
        output.note("Dry run: nothing was changed.")
    _raise_failures(request.act, results)


def report_steps(call: Call, act: str, *, actor: str, reason: str, results: Sequence[ActResult], shown: int) -> None:
    """The same for a step of the desk's workflow: of many messages the first few, those that were refused before."""
    head = {"act": act, "dry_run": False, "actor": actor, "reason": reason}
    worst = sorted(results, key=lambda result: result.outcome is Outcome.DONE)
    _print(call, head, results if call.json else worst, shown=shown)
    _raise_failures(act, results)


def _print(call: Call, head: Mapping[str, object], results: Sequence[ActResult], *, shown: int) -> None:
    if call.json:
        counted = {one.value: n for one, n in operations.count(results).items()}
        output.document("acts", {**head, **counted, "items": results})
    elif len(results) > 1 or results[0].outcome in {Outcome.DONE, Outcome.ASKED, Outcome.WOULD}:
        output.show(output.table(_COLUMNS, [_row(result) for result in results[:shown]]))
        if len(results) > shown:
            done = operations.count(results)[Outcome.DONE]
            output.note(f"and {len(results) - shown:,} more; {done:,} of {len(results):,} are done")


_COLUMNS: Final = (Column("message"), Column("outcome"), Column("destination", grow=True), Column("detail", fold=True))


def _row(result: ActResult) -> tuple[object, ...]:
    return result.id, output.state(result.outcome.value), result.destination or "–", result.detail


def _raise_failures(act: str, results: Sequence[ActResult]) -> None:
    counted = operations.count(results)
    failed = [result for result in results if result.outcome in {Outcome.REFUSED, Outcome.NOT_FOUND}]
    if not failed:
        return
    first = next((one for one in failed if one.outcome is Outcome.REFUSED), failed[0])
    kind = ActRefused if first.outcome is Outcome.REFUSED else NotFound
    if len(results) == 1:
        advice = first.next or ("redrive messages list" if kind is NotFound else "")
        raise kind(f"Message {first.id}: {first.detail}.", next=advice)
    raise kind(
        f"{act}: of {len(results)} messages {counted[Outcome.REFUSED]} were refused and"
        f" {counted[Outcome.NOT_FOUND]} not found; the first is {first.id}: {first.detail}.",
        next=first.next,
    )


def _messages(number: int) -> str:
    return "1 message" if number == 1 else f"{number:,} messages"
