"""Commands made from the table of verbs: options, dry run, confirmation, report.

A verb that cannot be undone, or whose messages a filter chose, asks on a terminal and needs `--yes` elsewhere.
"""

import getpass
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from enum import StrEnum
from functools import wraps
from inspect import cleandoc
from pathlib import Path
from typing import Any, Final

import click

from redrive.errors import ActRefused, InvalidValue, NotFound
from redrive.message import MessageId, ParkReason
from redrive.operate.actions import messages
from redrive.operate.actions.messages import Request
from redrive.operate.actions.model import Action, Noun, Option
from redrive.operate.actions.results import ActResult, Outcome, count
from redrive.operate.actions.table import ACTIONS
from redrive.operate.cli import output, selecting
from redrive.operate.cli.context import Call, checked, example, message_ids, store_command, taking
from redrive.operate.cli.exit_codes import Exit
from redrive.operate.cli.output import Column
from redrive.operate.cli.progress import bars
from redrive.operate.sanitize import one_line
from redrive.store.reads.models import LIMIT_MAX
from redrive.store.runtime.postgres import PostgresStore
from redrive.who import ACTOR_MAX, REASON_MAX, Who

SHOWN_MAX: Final = 20  # messages that are listed one by one

Body = Callable[..., Any]


def user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def why(body: Body, *, default: str | None = None) -> Body:
    """--reason and --actor, which the audit keeps: the body gets them as `who`. default: of an obvious act."""
    reason = Option("reason", "Why; kept in the audit.", required=default is None, default=default, most=REASON_MAX)
    actor = Option("actor", "Who acts; kept in the audit.", most=ACTOR_MAX)
    whose = "the operating system's user"

    @_parameter(reason)
    @click.option("--actor", default=user_name, show_default=whose, callback=_checked(actor), help=actor.help)
    @wraps(body)
    def command(*arguments: Any, actor: str, reason: str, **values: Any) -> Any:
        return body(*arguments, who=Who(actor=actor, reason=reason), **values)

    return command


dry_run: Final = click.option("--dry-run", is_flag=True, help="Say what would be done; change nothing.")
confirmed: Final = click.option("--yes", "-y", is_flag=True, help="Do not ask. Needed where there is no terminal.")


def options(action: Action) -> Callable[[Body], Body]:
    return taking(*map(_parameter, action.options))


def _parameter(option: Option) -> Callable[[Body], Body]:
    if option.flag == "":
        return click.argument(option.name, metavar=option.help, callback=_checked(option))
    how: dict[str, Any] = {"help": option.help, "required": option.required}
    if option.default is not None:  # a default of None would count as given
        how |= {"default": option.default, "show_default": option.default is not False}
    if option.type is bool:
        how |= {"is_flag": True}
    elif option.type is list:
        how |= {"callback": _json, "metavar": "JSON|@FILE", "required": False}
    elif issubclass(option.type, StrEnum):
        how |= {"type": click.Choice([one.value for one in option.type]), "callback": _checked(option)}
    elif option.type in (int, float):
        bounds: Any = click.IntRange if option.type is int else click.FloatRange
        how["type"] = bounds(option.least, option.most, min_open=option.above)
    else:
        how["callback"] = _checked(option)
    return click.option(option.flag or f"--{option.name.replace('_', '-')}", option.name, **how)


def _checked(option: Option) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    def check(_: click.Context, __: click.Parameter, value: str | None) -> Any:
        try:
            return None if value is None else option.parse(value)
        except InvalidValue as error:
            raise click.BadParameter(str(error)) from None

    return check


def _json(_: click.Context, __: click.Parameter, value: str | None) -> Any:
    if value is None:
        return None
    try:
        return json.loads(Path(value[1:]).read_text(encoding="utf-8") if value.startswith("@") else value)
    except (OSError, ValueError) as error:
        raise click.BadParameter(f"It is neither JSON nor @FILE with JSON ({type(error).__name__}).") from None


def add_actions(group: click.Group, noun: str, *, but: Sequence[str] = ()) -> None:
    """but: those that the noun's own file has."""
    for action in ACTIONS:
        if noun in {one.noun for one in action.commands} and action.name not in but:
            if action.noun is Noun.MESSAGE and not action.single:
                group.add_command(_message_command(action, noun))
            elif action.noun is Noun.DEAD:
                group.add_command(_step_command(action, noun))


def described(action: Action, noun: str) -> dict[str, Any]:
    place = action.command(noun)
    name = place.within or action.name
    lines = [f"redrive {noun} {name} {line}" for line in place.examples]
    return {"name": name, "help": cleandoc(place.help or action.help), "epilog": example(*lines)}


def _message_command(action: Action, noun: str) -> click.Command:
    only = ParkReason(noun) if noun in set(ParkReason) else None
    alone = [option.name for option in action.options if option.one_message]

    async def run(call: Call, store: PostgresStore, who: Who, dry_run: bool, **values: Any) -> None:
        ids: Sequence[MessageId] = values.pop("ids")
        ask = not values.pop("yes", True) and (action.final or not ids)
        if not ids:
            ids = await _selected(store, values.pop("given"), values["limit"])
        given = {option.name: values[option.name] for option in action.options}
        request = Request(action=action, who=who, options=given, only=only)
        await carry_out(call, store, request, ids, only_look=dry_run, ask=ask)

    def check(values: dict[str, Any]) -> None:
        if action.by_filter:
            values["ids"], values["given"] = selecting.split(values)
        for name in alone:
            if values[name] and len(values["ids"]) > 1:
                raise click.UsageError(f"--{name} belongs to one message; name one ID.")

    body: Body = why(dry_run(checked(check)(store_command(run))))
    if action.final or action.by_filter:
        body = confirmed(body)
    body = options(action)(body)
    return _chosen(action, noun, _limit(body) if action.by_filter else body)


def _chosen(action: Action, noun: str, body: Body) -> click.Command:
    chosen = selecting.selection(body) if action.by_filter else message_ids()(body)
    made: click.Command = click.command(**described(action, noun))(chosen)
    return made


_limit: Final = click.option(
    "--limit", type=click.IntRange(1, LIMIT_MAX), default=LIMIT_MAX, show_default=True, help="At most so many."
)


async def _selected(store: PostgresStore, given: Mapping[str, str], limit: int) -> Sequence[MessageId]:
    found = await selecting.first_selected(store, given, limit=limit)
    more = f" (no more than --limit {limit} at a time; run it again for the rest)." if len(found) == limit else "."
    output.note(f"The filter selects {len(found):,} dead letter{'' if len(found) == 1 else 's'}{more}")
    return found


def _step_command(action: Action, noun: str) -> click.Command:
    async def run(call: Call, store: PostgresStore, who: Who, **values: Any) -> None:
        given = {option.name: values.pop(option.name) for option in action.options}
        action.require_one(given)
        ids = await selecting.selected(store, *selecting.split(values)) if action.by_filter else values["ids"]
        report(call, action, who, await action.call(store, ids, who, **given), shown=SHOWN_MAX)

    return _chosen(action, noun, options(action)(why(store_command(run))))


async def carry_out(
    call: Call,
    store: PostgresStore,
    request: Request,
    ids: Sequence[MessageId],
    *,
    only_look: bool = False,
    ask: bool = False,
) -> None:
    ids = list(dict.fromkeys(ids))
    if only_look or ask:
        previewed = await messages.preview(store, request, ids)
        if only_look:
            report(call, request.action, request.who, previewed, only_look=True)
            return
        _ask(request, previewed)
    with bars() as progress:
        results = await messages.perform(store, request, ids, progress=progress)
    report(call, request.action, request.who, results)


def can_ask() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(question: str, *, what: str) -> None:
    """Wait for a yes. what: begins the sentence for a script, which cannot be asked."""
    if not can_ask():
        raise click.UsageError(f"{what} needs --yes without a terminal (or --dry-run first).")
    if not click.confirm(question, err=True):
        output.note("Nothing was changed.")
        raise click.exceptions.Exit(Exit.FAILED)


def _ask(request: Request, previewed: Sequence[ActResult]) -> None:
    fitting = [result for result in previewed if result.outcome is Outcome.WOULD]
    if not fitting:
        return
    if can_ask():
        for result in fitting[:SHOWN_MAX]:
            output.note(f"  {result.id}  {one_line(result.destination)}: {result.detail}")
        if len(fitting) > SHOWN_MAX:
            output.note(f"  and {len(fitting) - SHOWN_MAX:,} more")
    name, number = request.action.name, _messages(len(fitting))
    confirm(f"{name.capitalize()} {number}?", what=f"{name} of {number}")


def report(
    call: Call, action: Action, who: Who, results: Sequence[ActResult], *, only_look: bool = False, shown: int = 0
) -> None:
    """shown: of more messages only so many are listed, refused ones first; 0 = all, in their order."""
    counted = count(results)
    if call.json:
        head = {"act": action.name, "dry_run": only_look, **asdict(who)}
        output.document("acts", {**head, **{one.value: n for one, n in counted.items()}, "items": results})
    elif len(results) > 1 or results[0].outcome in {Outcome.DONE, Outcome.ASKED, Outcome.WOULD}:
        listed = sorted(results, key=lambda result: result.outcome is Outcome.DONE)[:shown] if shown else results
        output.show(output.records(_COLUMNS, listed))
        if rest := len(results) - len(listed):
            output.note(f"and {rest:,} more; {counted[Outcome.DONE]:,} of {len(results):,} are done")
    if only_look:
        output.note("Dry run: nothing was changed.")
    _raise_failures(action.name, results)


_COLUMNS: Final = (
    Column("message", of="id"),
    Column("outcome", of=lambda result, _: output.state(result.outcome.value)),
    Column("destination", grow=True),
    Column("detail", fold=True),
)


def _raise_failures(act: str, results: Sequence[ActResult]) -> None:
    counted = count(results)
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
