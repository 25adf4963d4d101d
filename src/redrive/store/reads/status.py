"""The status: backlog by destination, relays, workers, duties and what needs a person, read in one snapshot."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from redrive.message import ParkReason
from redrive.ports.workers import ConsumerReport
from redrive.store.reads import keys, models
from redrive.store.reads.transaction import Row, snapshot
from redrive.store.runtime.postgres import PostgresStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """Pending and leased work of one destination. oldest_due_seconds: how long the oldest due message has waited.

    paused_until: None = until an operator resumes it. breaker: closed, open, half_open or ramping.
    """

    destination: str
    pending: int
    due: int
    retrying: int
    suspects: int
    leased: int
    parked: Mapping[str, int]
    oldest_due_seconds: float | None
    paused: bool
    pause_reason: str | None
    paused_until: datetime | None
    breaker: str
    breaker_until: datetime | None
    breaker_code: str | None
    handled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayState:
    """listener: whether it hears the doorbell: listening, reconnecting, deaf, or off."""

    worker: UUID
    name: str
    host: str
    pid: int
    version: str
    destinations: Sequence[str]
    started_at: datetime
    seen_seconds_ago: float
    leases: int
    live: bool
    suspects_only: bool
    listener: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerState:
    """consumers: how far they were when it was last seen."""

    worker: UUID
    name: str
    host: str
    pid: int
    version: str
    started_at: datetime
    seen_seconds_ago: float
    live: bool
    consumers: Sequence[ConsumerReport]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerState:
    """A consumer that a worker ran within a week. workers: live ones that run it. away: those of them that say that its
    source does not answer. seen_seconds_ago: how long ago a worker ran it.
    """

    name: str
    workers: int
    away: int
    seen_seconds_ago: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DutyState:
    name: str
    every_seconds: float
    last_finished_at: datetime | None
    last_result: str | None
    overdue: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The holder of the oldest snapshot: rows deleted since then cannot be removed, and slow every query down.

    kind: session, prepared transaction or replication slot. age: in transactions. since, state: None where the login
    may not see them.
    """

    kind: str
    name: str | None
    pid: int | None
    application: str | None
    state: str | None
    since: datetime | None
    age: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticedJump:
    """A jump of the database's clock. offset_seconds: less than 0 where it was set back.

    redated: how many messages and tokens got another time. finished: none is left that needs one.
    """

    noticed_at: datetime
    offset_seconds: float
    noticed_by: str
    redated: int
    finished: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingReplay:
    """A replay that waits for an operator. stop_reason: None if it waits for a second person."""

    id: UUID
    name: str
    status: str
    stop_reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """blocked_keys: ordering keys that do not go on, by the state of their head. keys_looked_at: how many keys were
    looked at, where that were not all. counted_max: where there are more rows than this, all counts are lower bounds;
    None where everything was counted. clock_jumps: within a day, newest first. lanes_mended: how many lanes were ever
    found forgotten and healed; each was a bug of ours. sees_nothing: row-level security shows this login no message.
    """

    at: datetime
    backlog: Sequence[Backlog]
    relays: Sequence[RelayState]
    duties: Sequence[DutyState]
    late_answers: int
    workers: Sequence[WorkerState] = ()
    consumers: Sequence[ConsumerState] = ()
    blocked_keys: Mapping[str, int] = field(default_factory=dict)
    keys_looked_at: int | None = None
    counted_max: int | None = None
    lanes_mended: int = 0
    oldest_holder: Holder | None = None
    waiting_replays: Sequence[WaitingReplay] = ()
    clock_jumps: Sequence[NoticedJump] = ()
    sees_nothing: bool = False

    @property
    def unhandled(self) -> Sequence[str]:
        """Destinations with open messages that no live relay handles (G-29)."""
        return [b.destination for b in self.backlog if not b.handled and (b.pending or b.leased)]


async def status(store: PostgresStore, *, now: datetime | None = None) -> Status:
    async with snapshot(store) as ask:
        clock = (await ask("clock", now=now))[0]
        moment = {"now": clock["at"], "live_seconds": models.LIVE_SECONDS}
        blocked, looked_at = await keys.count_blocked(ask, now=clock["at"])
        most = models.COUNTED_MAX
        rows = await ask("backlog", **moment, most=most, limit=models.DESTINATIONS_MAX)
        return Status(
            at=clock["at"],
            counted_max=most if rows and rows[0]["capped"] else None,
            backlog=[_backlog(row) for row in rows],
            relays=[RelayState(**row) for row in await ask("relays", **moment, limit=models.RELAYS_MAX)],
            workers=[_worker(row) for row in await ask("workers", **moment, limit=models.RELAYS_MAX)],
            consumers=[ConsumerState(**row) for row in await ask("consumers", **moment, limit=models.DESTINATIONS_MAX)],
            duties=[DutyState(**row) for row in await ask("duties", **moment, limit=models.DUTIES_MAX)],
            late_answers=clock["late_answers"],
            blocked_keys=blocked,
            keys_looked_at=looked_at,
            lanes_mended=clock["lanes_mended"],
            oldest_holder=next((Holder(**row) for row in await ask("oldest_holder")), None),
            waiting_replays=[
                WaitingReplay(**row) for row in await ask("waiting_replays", limit=models.REPLAYS_SHOWN_MAX)
            ],
            clock_jumps=[
                NoticedJump(**row) for row in await ask("clock_jumps", now=clock["at"], limit=models.CLOCK_JUMPS_MAX)
            ],
            sees_nothing=not (await ask("may_see"))[0]["sees"],
        )


def _worker(row: Row) -> WorkerState:
    return WorkerState(**{**row, "consumers": [ConsumerReport(**one) for one in row["consumers"]]})


def _backlog(row: Row) -> Backlog:
    parked = {reason.value: row.pop(reason.value) for reason in ParkReason}
    own = {name: value for name, value in row.items() if name != "capped"}  # that is of all together
    return Backlog(**own, parked=parked)
