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
from redrive.store.reads.status import Backlog, DutyState, RelayState, Status, WorkerState
from redrive.store.runtime.postgres import PostgresStore

_DESTINATIONS: Final = (
    Column("destination", grow=True),
    *output.right("pending", "due", "retrying", "suspect", "leased", "dead", "held", "unrecorded", "oldest due"),
    Column("flow", grow=True),
)
_RELAYS: Final = (
    *output.growing("relay", "host"),
    Column("pid", "right"),
    *map(Column, ("version", "state", "seen", "bell")),
    Column("in hand", "right"),
    Column("handles", grow=True),
)
_WORKERS: Final = (
    *output.growing("worker", "host"),
    Column("pid", "right"),
    *map(Column, ("version", "state", "seen", "consumer", "source")),
    *output.right("in hand", "oldest", "received", "processed", "deferred", "last ended"),
)
_DUTIES: Final = (Column("duty"), Column("every"), Column("ended"), Column("result", grow=True), Column("state"))


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
        yield output.table(_DESTINATIONS, [_destination(one) for one in backlog])
    else:
        yield Text("None yet: one appears when a relay registers it or a message names it.")


def _destination(one: Backlog) -> tuple[object, ...]:
    return (
        one.destination,
        output.number(one.pending),
        output.number(one.due),
        output.number(one.retrying, style="yellow"),
        output.number(one.suspects, style="yellow"),
        output.number(one.leased),
        *(output.number(one.parked[reason], style="red") for reason in ("dead", "held", "unrecorded")),
        output.span(one.oldest_due_seconds),
        _flow(one),
    )


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
        yield output.table(_RELAYS, [_relay(relay) for relay in status.relays])
    else:
        yield Text("None. Start one: redrive relay MODULE:APP")


def _relay(relay: RelayState) -> tuple[object, ...]:
    live = Text("live", style="green") if relay.live else Text("stale", style="bold red")
    return (
        relay.name,
        relay.host,
        relay.pid,
        relay.version,
        live.append(" (suspects only)") if relay.suspects_only else live,
        f"{output.span(max(0.0, relay.seen_seconds_ago), units=1)} ago",
        Text(relay.listener, style="yellow" if relay.listener in {"reconnecting", "deaf"} else ""),
        output.number(relay.leases),
        ", ".join(relay.destinations),
    )


def _workers(status: Status) -> Iterator[RenderableType]:
    """A row for each consumer of each worker, then the consumers without one. No brokers: not a word."""
    if status.workers:
        yield heading("Workers")
        yield output.table(_WORKERS, [_consumer(worker, one) for worker in status.workers for one in worker.consumers])
    for consumer in status.consumers:
        if not consumer.workers:
            ago = output.span(max(0.0, consumer.seen_seconds_ago), units=1)
            yield Text(one_line(f"\nNo worker runs the consumer {consumer.name}; last seen {ago} ago"), style="yellow")


def _consumer(worker: WorkerState, consumer: ConsumerReport) -> tuple[object, ...]:
    ended = None if consumer.ended_seconds is None else consumer.ended_seconds + max(0.0, worker.seen_seconds_ago)
    return (
        worker.name,
        worker.host,
        worker.pid,
        worker.version,
        Text("live", style="green") if worker.live else Text("lost", style="bold red"),
        f"{output.span(max(0.0, worker.seen_seconds_ago), units=1)} ago",
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
        yield output.table(_DUTIES, [_duty(duty, status) for duty in status.duties])


def _duty(duty: DutyState, status: Status) -> tuple[object, ...]:
    return (
        duty.name,
        output.span(duty.every_seconds),
        output.ago(duty.last_finished_at, status.at),
        duty.last_result,
        Text("OVERDUE", style="bold red") if duty.overdue else Text("on time", style="green"),
    )
