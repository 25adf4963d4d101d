"""`redrive destinations`: where messages go, and whether anything goes there now."""

from datetime import datetime
from functools import partial
from typing import Any, Final

import click
from rich.text import Text

from redrive.operate import operations
from redrive.operate.actions.model import Action
from redrive.operate.actions.table import DESTINATION_ACTIONS
from redrive.operate.cli import acts, output
from redrive.operate.cli.context import Call, example, store_command
from redrive.operate.cli.exit_codes import Exit
from redrive.operate.cli.output import Column
from redrive.operate.destination_test import Tested
from redrive.operate.destinations import destinations
from redrive.operate.sanitize import one_line
from redrive.store.reads.models import DestinationView
from redrive.store.reads.status import Backlog
from redrive.store.runtime.postgres import PostgresStore
from redrive.who import Who

_COLUMNS: Final = (
    Column("destination", grow=True),
    Column("state"),
    Column("handled"),
    *output.right("pending", "leased", "parked"),
    Column("limits"),
    Column("since"),
    Column("until"),
    *output.growing("by", "reason"),
)
_KEY_COLUMNS: Final = (
    Column("destination"),
    Column("limit key", grow=True, of="key"),
    Column("state", of=lambda key, _: output.state("paused" if key.paused else output.words(key.breaker))),
    Column("for", of=lambda key, _: _seconds(key.pause_seconds if key.paused else key.breaker_seconds)),
    Column("by", grow=True, of=lambda key, _: key.paused_by if key.paused else "breaker"),
    Column("reason", grow=True, of=lambda key, _: key.pause_reason if key.paused else key.breaker_code),
)


@click.group()
def command() -> None:
    """List, pause, resume and test destinations."""


@command.command("list", epilog=example("redrive destinations list"))
@store_command
async def list_(call: Call, store: PostgresStore) -> None:
    """Every destination that was registered, was paused, or has open messages.

    Limits are over all relays. Reason: why it is paused, or the answer that opened its breaker. Where a transport names
    limit keys (a host, a tenant), those that rest, are paused, or are down are listed below.
    """
    found = await destinations(store)
    if call.json:
        output.document("destinations", found)
        return
    if found.items:
        output.show(output.table(_COLUMNS, [_row(one.open, one.known) for one in found.items]))
        if keys := [key for one in found.items for key in one.limit_keys]:
            output.show(output.records(_KEY_COLUMNS, keys))
    else:
        output.note("No destination yet: one appears when a relay registers it or a message names it.")


def _seconds(value: float | None) -> str | None:
    return None if value is None else f"{value:,.0f} s"


def _row(backlog: Backlog, known: DestinationView | None) -> tuple[object, ...]:
    return (
        backlog.destination,
        _state(backlog),
        "yes" if backlog.handled else "NO",
        output.number(backlog.pending),
        output.number(backlog.leased),
        output.number(sum(backlog.parked.values()), style="red"),
        _limits(known),
        *_held(known),
    )


def _state(backlog: Backlog) -> Text:
    if backlog.paused:
        return output.state("paused")
    return Text("flows") if backlog.breaker == "closed" else output.state(output.words(backlog.breaker))


def _limits(known: DestinationView | None) -> str:
    rate = known and known.rate_per_second
    in_flight = known and known.concurrency_limit
    parts = [f"{rate:g}/s" if rate else "", f"{in_flight:,} in flight" if in_flight else ""]
    return ", ".join(filter(None, parts)) or "–"


def _held(known: DestinationView | None) -> tuple[object, ...]:
    if known is None or (not known.paused and known.breaker == "closed"):
        return (None,) * 4
    if known.paused:
        since, until = output.moment(known.paused_at), output.moment(known.paused_until)
        return since, until, known.paused_by, known.pause_reason
    since, until = output.moment(known.breaker_changed_at), output.moment(_breaker_until(known))
    return since, until, "breaker", known.breaker_code


def _breaker_until(known: DestinationView) -> datetime | None:
    """Only while that is ahead; a probe has no known end."""
    return known.breaker_until if known.breaker in ("open", "ramping") else None


def _add_change(action: Action) -> None:
    """A dry run only looks whether the destination is known."""

    @store_command
    async def change(call: Call, store: PostgresStore, name: str, dry_run: bool, who: Who, **given: Any) -> None:
        if not given.pop("unseen", False):
            await operations.require_known(store, name)
        changed = None if dry_run else await action.call(store, name, who, **given)
        _say(call, name if given["key"] is None else f"{name}/{given['key']}", action, changed)

    body = acts.options(action)(acts.dry_run(acts.why(change)))
    if action.name == "pause":
        body = click.option("--unseen", is_flag=True, help="Also a destination that no message has named yet.")(body)
    command.command(**acts.described(action, "destinations"))(click.argument("name")(body))


PAUSE, RESUME, TEST = DESTINATION_ACTIONS
_add_change(PAUSE)
_add_change(RESUME)


@command.command(**acts.described(TEST, "destinations"))
@click.argument("name")
@acts.options(TEST)
@partial(acts.why, default="test")
@store_command
async def test(call: Call, store: PostgresStore, name: str, who: Who, **given: Any) -> None:
    tested = await TEST.call(store, name, who, **given)
    if call.json:
        output.document("destination_test", _test_item(tested))
    else:
        output.show(one_line(_outcome(tested)))
    if not tested.answered:
        raise click.exceptions.Exit(Exit.FAILED)


def _test_item(tested: Tested) -> dict[str, object]:
    seen = tested.known
    return {
        **{name: getattr(tested, name) for name in ("name", "answered", "message_id", "answer", "code")},
        "breaker": seen.breaker,
        "breaker_until": _breaker_until(seen),
        "paused_until": seen.paused_until,
    }


def _outcome(tested: Tested) -> str:
    seen = tested.known
    said = " ".join(filter(None, (tested.answer, tested.code))) or "no word in the archive yet"
    message = f"{tested.name}: message {tested.message_id}" if tested.message_id else f"{tested.name}: the message"
    if tested.answered is None:
        return (
            f"{message} was sent and has not come back yet."
            if tested.message_id
            else f"{tested.name}: no relay took one yet."
        )
    if not tested.answered:
        return f"{message} was not answered ({said}); left alone until {output.moment(seen.breaker_until)}."
    if seen.paused:
        return f"{message} was answered ({said}); it asks for a rest until {output.moment(seen.paused_until)}."
    return f"{message} was answered ({said}); the others follow, slowly at first."


def _say(call: Call, name: str, action: Action, changed: bool | None) -> None:
    """changed: None for a dry run."""
    act = action.name
    if call.json:
        values = {"name": name, "act": act, "dry_run": changed is None, "changed": bool(changed)}
        output.document("destination", values)
    elif changed is None:
        output.show(f"Dry run: would {act} {one_line(name)}. Nothing was changed.")
    else:
        output.show(f"{one_line(name)} {f'is {act}d' if changed else f'{action.said}; nothing was changed'}.")
