"""What in a status needs an operator, with the command that helps; the most urgent first."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from shlex import quote
from typing import Final

from redrive.message import ParkReason
from redrive.operate.time_format import span
from redrive.store.reads.models import LIVE_SECONDS
from redrive.store.reads.status import Backlog, Holder, Status

# The age from which a snapshot is shown, and is a finding: in seconds, or in transactions if its start is unknown.
HOLDER_SHOWN: Final = (60.0, 10_000)
HOLDER_FOUND: Final = (3600.0, 1_000_000)


@dataclass(frozen=True, slots=True)
class Finding:
    """code: stable name of the kind. subject: a destination, relay, consumer or duty."""

    code: str
    subject: str
    detail: str
    next: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusReport(Status):
    findings: Sequence[Finding]


def report(status: Status) -> StatusReport:
    own = {field.name: getattr(status, field.name) for field in fields(status)}
    return StatusReport(**own, findings=findings(status))


def findings(status: Status) -> list[Finding]:
    return [
        *_blind(status),
        *_unhandled(status),
        *_paused(status),
        *_down(status),
        *_clock(status),
        *_overdue(status),
        *_stale(status),
        *_without_worker(status),
        *_sources_away(status),
        *_halted(status),
        *_deaf(status),
        *_held(status),
        *_replays(status),
        *_parked(status),
    ]


def _blind(status: Status) -> Iterator[Finding]:
    """A login that may see nothing must not take an empty list for good news."""
    if status.sees_nothing:
        yield Finding(
            "no_tenant",
            "this login",
            "has chosen no tenant, or has no role that may see messages: row-level security shows it none",
            "ALTER ROLE … SET redrive.tenant = 'NAME' (or '*'), or options='-c redrive.tenant=NAME' in the DSN",
        )


def _unhandled(status: Status) -> Iterator[Finding]:
    """G-29: never silent."""
    by_name = {backlog.destination: backlog for backlog in status.backlog}
    for name in status.unhandled:
        waiting = by_name[name].pending + by_name[name].leased
        yield Finding(
            "unhandled",
            name,
            f"{waiting:,} open {_messages(waiting)} and no live relay handles it",
            "redrive relay MODULE:APP, with an app that declares this destination",
        )


def _paused(status: Status) -> Iterator[Finding]:
    for backlog in status.backlog:
        if backlog.paused and backlog.paused_until is None:  # else it goes on by itself
            reason = f" ({backlog.pause_reason})" if backlog.pause_reason else ""
            yield Finding(
                "paused",
                backlog.destination,
                f"paused{reason}; {backlog.pending:,} {_messages(backlog.pending)} wait",
                f"redrive destinations resume {quote(backlog.destination)} --reason '…'",
            )


def _down(status: Status) -> Iterator[Finding]:
    for backlog in status.backlog:
        if not backlog.paused and backlog.breaker in ("open", "half_open"):
            code = f" ({backlog.breaker_code})" if backlog.breaker_code else ""
            yield Finding(
                "down",
                backlog.destination,
                f"does not answer{code}; {backlog.pending:,} {_messages(backlog.pending)} wait",
                f"redrive destinations test {quote(backlog.destination)}, once it is up again",
            )


def _clock(status: Status) -> Iterator[Finding]:
    """Shown for a day: the jump is repaired, but its cause may come back."""
    for jump in status.clock_jumps:
        way = "set back" if jump.offset_seconds < 0 else "set forward"
        redated = f"; {jump.redated:,} {_messages(jump.redated)} re-dated" if jump.redated else ""
        more = "" if jump.finished else ", more to come"
        yield Finding(
            "clock_jumped",
            "the database's clock",
            f"was {way} by {span(abs(jump.offset_seconds))} at {jump.noticed_at:%Y-%m-%d %H:%M:%S} UTC,"
            f" noticed by {jump.noticed_by}{redated}{more}",
            "see what sets that machine's clock (NTP, a suspended or restored machine):"
            " docs/how-to/after-a-clock-jump.md",
        )


def _overdue(status: Status) -> Iterator[Finding]:
    for duty in status.duties:
        if duty.overdue:
            yield Finding(
                "duty_overdue",
                duty.name,
                f"this duty runs every {duty.every_seconds:g} s and has not ended for three times that",
                "look at the relays' logs for duty.failed, or start a relay",
            )


def _stale(status: Status) -> Iterator[Finding]:
    for relay in status.relays:
        if not relay.live and relay.leases:
            yield Finding(
                "relay_stale",
                relay.name,
                f"not seen for {relay.seen_seconds_ago:,.0f} s, with {relay.leases:,} in hand",
                "its messages come back when their leases run out; see whether the process lives",
            )


def _without_worker(status: Status) -> Iterator[Finding]:
    """The broker keeps its messages meanwhile, and cannot be asked how many. A restart is none."""
    for consumer in status.consumers:
        if not consumer.workers and consumer.seen_seconds_ago > LIVE_SECONDS:
            yield Finding(
                "consumer_unhandled",
                consumer.name,
                f"no live worker runs this consumer; the last one was seen {span(consumer.seen_seconds_ago)} ago",
                "redrive worker MODULE:APP, with an app that declares it; one that is gone for good is forgotten"
                " after a week",
            )


def _sources_away(status: Status) -> Iterator[Finding]:
    for consumer in status.consumers:
        if consumer.away:
            yield Finding(
                "source_away",
                consumer.name,
                f"its source does not answer {consumer.away:,} of {consumer.workers:,} workers",
                "see whether the broker runs, and consumer.source_failed in the workers' logs",
            )


def _halted(status: Status) -> Iterator[Finding]:
    """More urgent than a single parked message: whole keys wait behind these."""
    keys = sum(status.blocked_keys.get(reason, 0) for reason in ParkReason)
    if keys:
        yield Finding(
            "keys_halted",
            "ordering keys",
            f"{keys:,} {'key waits' if keys == 1 else 'keys wait'} behind a parked message",
            "redrive keys list --blocked",
        )


def _held(status: Status) -> Iterator[Finding]:
    """A forgotten transaction; a dump that runs for less than an hour is none."""
    holder = status.oldest_holder
    if holder is not None and is_older(holder, status.at, HOLDER_FOUND):
        yield Finding(
            "old_snapshot",
            described(holder),
            "keeps alive all rows that were deleted since it began, so that every look takes longer and longer",
            _ENDS[holder.kind].format(pid=holder.pid, name=(holder.name or "").replace("'", "''")),
        )


_ENDS: Final = {
    "session": "end it where it came from, or SELECT pg_terminate_backend({pid})",
    "prepared transaction": "COMMIT PREPARED '{name}', or ROLLBACK PREPARED '{name}'",
    "replication slot": "see what is wrong with its reader, or SELECT pg_drop_replication_slot('{name}')",
}


def described(holder: Holder) -> str:
    """`session 4711 (psql, idle in transaction)`"""
    known = ", ".join(word for word in (holder.application, holder.state) if word)
    return f"{holder.kind} {holder.name or holder.pid}" + (f" ({known})" if known else "")


def is_older(holder: Holder, at: datetime, age: tuple[float, int]) -> bool:
    seconds, transactions = age
    if holder.since is None:
        return holder.age >= transactions
    return (at - holder.since).total_seconds() >= seconds


def _deaf(status: Status) -> Iterator[Finding]:
    for relay in status.relays:
        if relay.live and relay.listener == "deaf":
            yield Finding(
                "relay_deaf",
                relay.name,
                "it listens for new work and does not hear itself (a pooler between transactions?), so it polls",
                "set listen_dsn (REDRIVE_LISTEN_DSN) to a direct connection, or wakeup = poll",
            )


def _replays(status: Status) -> Iterator[Finding]:
    for replay in status.waiting_replays:
        if replay.status == "stopped":
            yield Finding(
                "replay_stopped",
                replay.name,
                f"stopped by itself: {replay.stop_reason}",
                f"redrive replay status {replay.id}, then resume or cancel it",
            )
        else:
            yield Finding(
                "replay_waiting",
                replay.name,
                "moves money, and no second person has approved it",
                f"redrive replay approve {replay.id} --reason '…', or cancel it",
            )


def _parked(status: Status) -> Iterator[Finding]:
    for backlog in status.backlog:
        yield from (_waiting(backlog, reason, number) for reason, number in backlog.parked.items() if number)


def _waiting(backlog: Backlog, reason: str, number: int) -> Finding:
    return Finding(
        reason,
        backlog.destination,
        f"{number:,} {reason} {_messages(number)} {'waits' if number == 1 else 'wait'} for a person",
        f"redrive {reason} list --destination {quote(backlog.destination)}",
    )


def _messages(number: int) -> str:
    return "message" if number == 1 else "messages"
