"""`redrive status`: what flows, what waits and who works; loud about what needs a person."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final, Self

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from redrive.operate import operations
from redrive.operate.cli import output
from redrive.operate.cli.context import Call, example, store_command
from redrive.operate.cli.exit_codes import Exit
from redrive.operate.cli.message_page import heading
from redrive.operate.cli.output import Column
from redrive.operate.findings import HOLDER_SHOWN, Finding, described, findings, is_older, report
from redrive.operate.sanitize import one_line
from redrive.ports import TransientFailure
from redrive.ports.workers import ConsumerReport
from redrive.store.reads.status import Backlog, RelayState, Status, WorkerState
from redrive.store.runtime.postgres import PostgresStore


def _parked(reason: str) -> Column:
    return Column(reason, "right", of=lambda one, _: output.number(one.parked[reason], style="red"))


_DESTINATIONS: Final = (
    Column("destination", grow=True),
    *output.numbers(pending="", due="", retrying="yellow"),
    Column("suspect", "right", of=lambda one, _: output.number(one.suspects, style="yellow")),
    *output.numbers(leased=""),
    *map(_parked, ("dead", "held", "unrecorded")),
    Column("oldest due", "right", of=lambda one, _: output.span(one.oldest_due_seconds)),
    Column("flow", grow=True, of=lambda one, _: _flow(one)),
)
_RELAYS: Final = (
    Column("relay", grow=True, of="name"),
    Column("host", grow=True),
    Column("pid", "right"),
    Column("version"),
    Column("state", of=lambda relay, _: _state(relay)),
    Column("seen", of=lambda one, _: _seen(one.seen_seconds_ago)),
    Column("bell", of=lambda one, _: Text(one.listener, "yellow" if one.listener in ("reconnecting", "deaf") else "")),
    Column("in hand", "right", of=lambda one, _: output.number(one.leases)),
    Column("handles", grow=True, of=lambda one, _: ", ".join(one.destinations)),
)
_WORKERS: Final = (
    *output.growing("worker", "host"),
    Column("pid", "right"),
    *map(Column, ("version", "state", "seen", "consumer", "source")),
    *output.right("in hand", "oldest", "received", "processed", "deferred", "last ended"),
)
_DUTIES: Final = (
    Column("duty", of="name"),
    Column("every", of=lambda duty, _: output.span(duty.every_seconds)),
    output.since("ended", "last_finished_at"),
    Column("result", grow=True, of="last_result"),
    Column("state", of=lambda duty, _: Text(*(("OVERDUE", "bold red") if duty.overdue else ("on time", "green")))),
)


@click.command(
    "status", epilog=example("redrive status", "redrive status --watch", "redrive status --json --fail-on findings")
)
@click.option("--watch", is_flag=True, help="Show it again and again, until Ctrl-C.")
@click.option(
    "--every", type=click.FloatRange(0.1, 3600), default=1.0, show_default=True, help="Seconds between two looks."
)
@click.option("--count", type=click.IntRange(1), help="With --watch: stop after so many looks.")
@click.option(
    "--fail-on",
    type=click.Choice(["findings"]),
    help="Exit with 6 if anything needs a person (with --watch: at the last look).",
)
@store_command
async def command(
    call: Call, store: PostgresStore, watch: bool, every: float, count: int | None, fail_on: str | None
) -> None:
    """What flows, what waits and who works, in one snapshot.

    A destination with open messages that no live relay handles, and one that is paused, are said out loud, each
    with the command that helps.
    """
    if watch:
        status = await _watch(call, store, every=every, count=count)
    else:
        status = await operations.status(store)
        _print(call, status)
    if fail_on and status and findings(status):
        raise click.exceptions.Exit(Exit.FINDINGS)


async def _watch(call: Call, store: PostgresStore, *, every: float, count: int | None) -> Status | None:
    """An outage of the database is shown and outlived."""
    on_terminal = output.stdout().is_terminal and not call.json
    status: Status | None = None
    with Live(console=output.stdout(), screen=True, auto_refresh=False) if on_terminal else _Printed() as live:
        looks = 0
        while True:
            try:
                status = await operations.status(store)
            except TransientFailure as failure:
                live.update(Text(f"The database does not answer ({failure}); trying again.", style="bold red"))
            else:
                if on_terminal:
                    live.update(Group(*page(status, findings_first=True)), refresh=True)
                else:
                    _print(call, status, one_per_line=True)
            looks += 1
            if looks == count:
                return status
            await asyncio.sleep(every)


class _Printed:
    """Stands in for the live screen: what is to be shown is a note on stderr."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def update(self, part: RenderableType, *, refresh: bool = True) -> None:  # noqa: ARG002 - Live's signature
        output.note(str(part))


def _print(call: Call, status: Status, *, one_per_line: bool = False) -> None:
    if call.json:
        output.document("status", report(status), one_per_line=one_per_line)
    else:
        output.show(*page(status))


def page(status: Status, *, findings_first: bool = False) -> Iterator[RenderableType]:
    found = findings(status)
    yield Text(f"Redrive at {output.moment(status.at)}", style="bold")
    if findings_first:
        yield from _loud(found)
    yield from _destinations(status.backlog)
    yield from _relays(status)
    yield from _workers(status)
    yield from _duties(status)
    if status.counted_max is not None:
        yield Text(f"\nMore than {status.counted_max:,} rows: the counts above are lower bounds.")
    yield Text(f"\nLate answers refused so far: {status.late_answers:,}")
    yield from _keys(status)
    yield from _oldest_holder(status)
    if not findings_first:
        yield from _loud(found)


def _keys(status: Status) -> Iterator[RenderableType]:
    """In flight is not blocked; a lane that had to be mended is a bug of ours."""
    blocked = {output.words(state): keys for state, keys in status.blocked_keys.items() if keys}
    why = f" ({', '.join(f'{keys:,} {state}' for state, keys in blocked.items())})" if blocked else ""
    of = f", of the {status.keys_looked_at:,} looked at" if status.keys_looked_at else ""
    yield Text(f"Ordering keys that are blocked: {sum(blocked.values()):,}{why}{of}")
    yield Text(f"Lanes mended so far: {status.lanes_mended:,}", style="bold red" if status.lanes_mended else "")


def _oldest_holder(status: Status) -> Iterator[RenderableType]:
    """There is always a youngest oldest one."""
    holder = status.oldest_holder
    if holder is None or not is_older(holder, status.at, HOLDER_SHOWN):
        return
    since = f" since {output.moment(holder.since)}" if holder.since else ""
    yield Text(
        f"Dead rows are kept alive by {one_line(described(holder))}{since} ({holder.age:,} transactions)",
        style="yellow",
    )


def _loud(found: Sequence[Finding]) -> Iterator[RenderableType]:
    if not found:
        yield Text("\nNothing needs a person.", style="green")
        return
    yield heading("Needs a person")
    for finding in found:
        style = "bold red" if finding.code in {"unhandled", "paused", "down"} else "yellow"
        line = Text(f"! {one_line(finding.subject)}: {one_line(finding.detail)}", style=style)
        yield line.append(f"\n  → {one_line(finding.next)}", style="not bold default")


def _destinations(backlog: Sequence[Backlog]) -> Iterator[RenderableType]:
    yield heading("Destinations")
    if backlog:
        yield output.records(_DESTINATIONS, backlog)
    else:
        yield Text("None yet: one appears when a relay registers it or a message names it.")


def _flow(one: Backlog) -> Text:
    if one.paused:
        until = f" until {output.moment(one.paused_until)}" if one.paused_until else ""
        return Text(one_line(f"PAUSED: {one.pause_reason or 'no reason'}{until}"), style="bold yellow")
    if not one.handled:
        return Text("NOT HANDLED", style="bold red") if one.pending or one.leased else Text("no relay", style="dim")
    if one.breaker == "closed":
        return Text("flows", style="green")
    if one.breaker == "ramping":
        return Text("ramping up", style="yellow")
    until = f", left alone until {output.moment(one.breaker_until)}" if one.breaker == "open" else ", one is tried"
    return Text(one_line(f"DOWN: {one.breaker_code or 'no answer'}{until}"), style="bold red")


def _relays(status: Status) -> Iterator[RenderableType]:
    yield heading("Relays")
    if status.relays:
        yield output.records(_RELAYS, status.relays)
    else:
        yield Text("None. Start one: redrive relay MODULE:APP")


def _state(relay: RelayState) -> Text:
    live = Text("live", style="green") if relay.live else Text("stale", style="bold red")
    return live.append(" (suspects only)") if relay.suspects_only else live


def _seen(seconds_ago: float) -> str:
    return f"{output.span(max(0.0, seconds_ago), units=1)} ago"


def _workers(status: Status) -> Iterator[RenderableType]:
    """A row for each consumer of each worker, then the consumers without one. No brokers: not a word."""
    if status.workers:
        yield heading("Workers")
        yield output.table(_WORKERS, [_consumer(worker, one) for worker in status.workers for one in worker.consumers])
    for consumer in status.consumers:
        if not consumer.workers:
            seen = _seen(consumer.seen_seconds_ago)
            yield Text(one_line(f"\nNo worker runs the consumer {consumer.name}; last seen {seen}"), style="yellow")


def _consumer(worker: WorkerState, consumer: ConsumerReport) -> tuple[object, ...]:
    ended = None if consumer.ended_seconds is None else consumer.ended_seconds + max(0.0, worker.seen_seconds_ago)
    return (
        worker.name,
        worker.host,
        worker.pid,
        worker.version,
        Text("live", style="green") if worker.live else Text("lost", style="bold red"),
        _seen(worker.seen_seconds_ago),
        consumer.name,
        _source(worker, consumer),
        output.number(consumer.in_hand),
        output.span(consumer.oldest_seconds if consumer.in_hand else None, units=1),
        output.number(consumer.received),
        output.number(consumer.processed),
        output.number(consumer.deferred, style="yellow"),
        "never" if ended is None else f"{output.span(ended, units=1)} ago",
    )


def _source(worker: WorkerState, consumer: ConsumerReport) -> Text:
    """Of a lost worker nothing is known."""
    if not worker.live or consumer.is_connected is None:
        return Text("not asked yet" if worker.live else "not known", style="dim")
    return Text("connected", style="green") if consumer.is_connected else Text("AWAY", style="bold red")


def _duties(status: Status) -> Iterator[RenderableType]:
    if status.duties:
        yield heading("Duties")
        yield output.records(_DUTIES, status.duties, status.at)
