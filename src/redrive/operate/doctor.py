"""Checks whether a database is fit for Redrive, with the remedy for each point that is not.

A failed point hinders work now; a warning will later, or hides something.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import uuid4

from redrive.errors import NotAllowed, OperatorError
from redrive.message import WorkerId
from redrive.operate import operations
from redrive.operate.findings import Finding, findings
from redrive.store.migrations import migrate
from redrive.store.reads import doctor as looks
from redrive.store.reads.doctor import BY_DEFAULT_MAX, Server, Upkeep
from redrive.store.reads.status import RelayState, Status, WorkerState
from redrive.store.runtime.postgres import PostgresStore

VERSION_MIN, VERSION_TESTED = 15, 18
SKEW_SECONDS_MAX: Final = 2.0
PARTITIONS_AHEAD: Final = timedelta(days=7)
QUEUE_SECONDS_MAX: Final = 300.0
POINTS: Final = (
    "connection", "schema", "server", "privileges", "clock", "listen", "pooler", "autovacuum", "commits",
    "replication slots", "partitions", "messages", "old snapshots", "queue", "destinations", "relays", "workers",
    "policies", "witness",
)  # fmt: skip
FIRST_READ: Final = "partitions"  # from here on they are in our own tables, which not every login may read


class Verdict(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """next: the remedy; empty if none is needed."""

    name: str
    verdict: Verdict
    detail: str
    next: str = ""


class Judged(NamedTuple):
    """A point without its name, which is its place in `POINTS`."""

    verdict: Verdict
    detail: str
    next: str = ""


async def examine(dsn: str, *, listen_dsn: str | None = None, sets: Sequence[migrate.MigrationSet] = ()) -> list[Point]:
    """All of `POINTS`, in that order. Points after a failed one that they depend on are skipped."""
    points: list[Point] = []
    try:
        with operations.explained(dsn):
            async for judged in _looked(dsn, listen_dsn or dsn, sets):
                points.append(_point(len(points), judged))
    except OperatorError as error:
        if isinstance(error, NotAllowed) and POINTS[len(points)] == FIRST_READ:
            return points + _skipped(points, "this login may not look; one with redrive_viewer may")
        points.append(_point(len(points), _fail(error.message, error.next)))
    return points + _skipped(points, "not looked at, because of what failed before it")


def _skipped(points: Sequence[Point], why: str) -> list[Point]:
    return [_point(number, Judged(Verdict.SKIPPED, why)) for number in range(len(points), len(POINTS))]


def _point(number: int, judged: Judged) -> Point:
    return Point(name=POINTS[number], **judged._asdict())


async def _looked(dsn: str, listen_dsn: str, sets: Sequence[migrate.MigrationSet]) -> AsyncIterator[Judged]:
    async with PostgresStore(dsn, connections=2, name="redrive doctor") as store:
        await store.rows("SELECT 1", [])
        yield _ok("the server answers")
        checked = await asyncio.to_thread(migrate.check, dsn, sets=sets)
        yield _schema(checked)
        if checked.state not in migrate.USABLE:
            return
        began, here = time.monotonic(), datetime.now(UTC)
        server = await looks.server(store)
        took = time.monotonic() - began
        yield _server(server)
        has_act = bool({"redrive_relay", "redrive_operator"} & set(server.roles))
        yield _privileges(server, await looks.system_roles(store) if has_act else {})
        yield _clock((here - server.at).total_seconds() + took / 2, asked_seconds=took)
        has_own_line = listen_dsn != dsn
        yield _listen(await looks.hears(store, listen_dsn, WorkerId(uuid4())), has_own_line=has_own_line)
        yield _pooler(await looks.is_pooled(store), has_own_line=has_own_line)
        yield _autovacuum(server)
        yield _commits(server)
        yield _slots(server)
        upkeep = await looks.upkeep(store)
        yield _partitions(upkeep, server.at)
        yield _messages(upkeep)
        for judged in _work(await operations.status(store), server):
            yield judged
        yield _policies(upkeep)
        yield _witness(upkeep)


# the judges


def _schema(checked: migrate.Checked) -> Judged:
    if checked.state not in migrate.USABLE:
        return _fail(f"{checked.state}: {checked.detail}", checked.next or "redrive db upgrade")
    if checked.pending:
        return _warn(f"{checked.state}: {checked.detail}", checked.next or "redrive db upgrade")
    return _ok(checked.detail or checked.state)


def _server(server: Server) -> Judged:
    major = server.version // 10_000
    if server.is_standby:
        return _fail("this is a standby: nothing can be written here", "name the primary in the DSN")
    if major < VERSION_MIN:
        return _fail(f"PostgreSQL {major}; {VERSION_MIN} or later is needed", "upgrade the server")
    if major > VERSION_TESTED:
        return _warn(
            f"PostgreSQL {major} is newer than this version was tested with ({VERSION_TESTED})",
            "look for a newer version of redrive",
        )
    return _ok(f"PostgreSQL {server.version_text}")


def _privileges(server: Server, system_roles: Mapping[str, bool] = MappingProxyType({})) -> Judged:
    """system_roles: of the systems in use; True where this login is a member."""
    if server.is_superuser:
        return _warn(
            f"{server.login} is a superuser: more than any part of Redrive needs",
            "make a login for each part, with one of the redrive_ roles (docs/how-to/run-in-production.md)",
        )
    if not server.roles:
        return _fail(
            f"{server.login} has none of the redrive_ roles",
            f'GRANT redrive_relay TO "{server.login}" (or redrive_producer, redrive_operator, redrive_viewer)',
        )
    for role, is_member in system_roles.items():
        if "redrive_operator" in server.roles and is_member:
            return _warn(
                f"{server.login} is a member of redrive_operator and {role}: a person could write the evidence on which"
                " they act",
                f'REVOKE {role} FROM "{server.login}": it is for the login of relays',
            )
        if "redrive_relay" in server.roles and not is_member:
            return _warn(
                f"{server.login} is not a member of {role}: relays with this login cannot run that system's duties",
                f'GRANT {role} TO "{server.login}"',
            )
    has = [*server.roles, *(role for role, is_member in system_roles.items() if is_member)]
    return _ok(f"{server.login} has {', '.join(has)}")


def _clock(skew: float, *, asked_seconds: float) -> Judged:
    """Only the server's clock decides; this machine's goes into signatures and log lines."""
    if abs(skew) <= SKEW_SECONDS_MAX + asked_seconds:
        return _ok(f"within {SKEW_SECONDS_MAX:g} s of the server's")
    way = "ahead of" if skew > 0 else "behind"
    return _warn(f"this machine is {abs(skew):,.1f} s {way} the server", "synchronise both (NTP)")


def _listen(hears: bool, *, has_own_line: bool) -> Judged:
    if hears:
        return _ok("what is notified arrives")
    if has_own_line:
        return _fail("nothing arrives on listen_dsn", "give REDRIVE_LISTEN_DSN a direct connection")
    return _warn(
        "what is notified does not arrive, so that relays only poll",
        "set REDRIVE_LISTEN_DSN to a direct connection, or wakeup = poll",
    )


def _pooler(is_pooled: bool, *, has_own_line: bool) -> Judged:
    if not is_pooled:
        return _ok("none between here and the server")
    if has_own_line:
        return _ok("there is one, and a line of its own for listening")
    return _warn(
        "there is one between here and the server",
        "set REDRIVE_LISTEN_DSN, and upgrade the schema over a direct connection",
    )


def _autovacuum(server: Server) -> Judged:
    if server.has_autovacuum:
        return _ok("on")
    return _fail("off: dead rows are never taken away", "SET autovacuum and track_counts to on")


def _commits(server: Server) -> Judged:
    if server.commits_synchronously:
        return _ok("a crash of the server loses nothing that was committed")
    return _warn(
        "synchronous_commit is off for this login: a crash of the server can lose what was committed, and a relay that"
        " moves money refuses to start",
        f'ALTER ROLE "{server.login}" SET synchronous_commit = on',
    )


def _partitions(upkeep: Upkeep, now: datetime) -> Judged:
    end = upkeep.partition_end
    if end is None or end <= now:
        return _fail(f"the last one has ended{_by_default(upkeep)}", _how_to_move(upkeep))
    left = end - now
    if left < PARTITIONS_AHEAD:
        return _warn(f"made ahead for {left.days} days only{_by_default(upkeep)}", _how_to_move(upkeep))
    if upkeep.by_default:
        return _warn(f"made ahead for {left.days} days{_by_default(upkeep)}", _how_to_move(upkeep))
    return _ok(f"made ahead for {left.days} days")


def _by_default(upkeep: Upkeep) -> str:
    if not upkeep.by_default:
        return ""
    more = " or more" if upkeep.by_default >= BY_DEFAULT_MAX else ""
    return f"; {upkeep.by_default:,}{more} rows lie in the default partitions, which are never retired"


def _how_to_move(upkeep: Upkeep) -> str:
    if not upkeep.by_default:
        return "start a relay: its duty `partitions` makes them"
    return (
        "start a relay: its duty `partitions` makes the partitions, and moves the rows into them, 20,000 at a time; if"
        " it says that there are more of one moment, as the owner, in a quiet hour, until it returns 0:"
        " SELECT redrive.make_partitions_1(604800, 4, p_move_max => 2000000000)"
    )


def _messages(upkeep: Upkeep) -> Judged:
    if not upkeep.gone:
        return _ok("the oldest open ones have their rows")
    return _fail(
        f"{upkeep.gone} open messages have no row any more: a partition of redrive.message was dropped by hand. They"
        " park themselves with the code MESSAGE_GONE",
        "restore the partition and requeue them, or discard them (`redrive dead list --error-class MESSAGE_GONE`)",
    )


def _slots(server: Server) -> Judged:
    if not server.idle_slots:
        return _ok("each is read")
    names = ", ".join(server.idle_slots)
    return _warn(
        f"{names} {'has' if len(server.idle_slots) == 1 else 'have'} no reader: all WAL since then is kept",
        f"see what is wrong with the reader, or SELECT pg_drop_replication_slot('{server.idle_slots[0]}')",
    )


def _work(status: Status, server: Server) -> Iterator[Judged]:
    found = findings(status)
    yield _worst(_of(found, "old_snapshot"), _snapshots(server))
    yield _queue(status)
    yield _worst(_of(found, "unhandled", "paused", "down"), "every one with work is handled")
    yield _worst(_of(found, "clock_jumped", "relay_stale", "relay_deaf", "duty_overdue"), _live(status.relays))
    yield _worst(_of(found, "consumer_unhandled", "source_away"), _live(status.workers))


def _snapshots(server: Server) -> str:
    return "none older than an hour" if server.sees_sessions else "none that this login sees (pg_read_all_stats)"


def _queue(status: Status) -> Judged:
    late = [one for one in status.backlog if (one.oldest_due_seconds or 0) > QUEUE_SECONDS_MAX and not one.paused]
    if not late:
        return _ok(f"nothing has been due for longer than {QUEUE_SECONDS_MAX:,.0f} s")
    oldest = max(late, key=lambda one: one.oldest_due_seconds or 0)
    return _warn(
        f"{oldest.destination} has had something due for {oldest.oldest_due_seconds:,.0f} s",
        "redrive status; start more relays, or raise concurrency",
    )


def _policies(upkeep: Upkeep) -> Judged:
    if not upkeep.differing:
        return _ok("live relays agree about every destination")
    names = ", ".join(upkeep.differing)
    return _warn(f"live relays follow different rules for {names}", "finish the roll-out of the app")


def _witness(upkeep: Upkeep) -> Judged:
    """Relays notice a restored database by what they remember outside it."""
    if not upkeep.money:
        return _ok("no destination moves money")
    if upkeep.unwitnessed:
        return _warn(
            f"{', '.join(upkeep.unwitnessed)} would not notice after a restart that the database was restored",
            "give the relay a state_directory that it can write (REDRIVE_STATE_DIRECTORY)",
        )
    return _ok("live relays remember, over restarts, the money that they sent")


def _live(found: Sequence[RelayState | WorkerState]) -> str:
    live = sum(one.live for one in found)
    return f"{live} live" if live else "none registered"


def _worst(found: Sequence[Finding], well: str) -> Judged:
    """The first is the most urgent; the others are counted."""
    if not found:
        return _ok(well)
    first, more = found[0], f" (and {len(found) - 1} more: redrive status)" if len(found) > 1 else ""
    is_failure = first.code in {"unhandled", "down"}
    make = _fail if is_failure else _warn
    return make(f"{first.subject}: {first.detail}{more}", first.next)


def _of(found: Sequence[Finding], *codes: str) -> list[Finding]:
    return [finding for finding in found if finding.code in codes]


def _ok(detail: str) -> Judged:
    return Judged(Verdict.OK, detail)


def _warn(detail: str, next: str) -> Judged:
    return Judged(Verdict.WARN, detail, next)


def _fail(detail: str, next: str) -> Judged:
    return Judged(Verdict.FAIL, detail, next)
