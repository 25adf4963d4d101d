"""The seams as types: what the engine needs from a transport, a store and a clock.

`Transport` is seam S2, `Record` seam S3, `Store` what the relay and the duties need from PostgreSQL (or from the model
store of `redrive.testing`, which the same conformance tests hold to the same promises). Every verb of the store is one
short transaction; each takes `now`, None meaning the database's clock (ruling 6: only tests pass it).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from redrive.answers import Answer, LookupAnswer
from redrive.errors import SettingsError
from redrive.message import Attempt, CancelAnswer, Fence, HistoryEntry, MessageId, WorkerId
from redrive.policy import ClockJump, Settlement


class TransientFailure(Exception):
    """The database could not be reached, or asked to try again (deadlock, serialisation). Nothing else is wrong."""


class RecordFailed(Exception):
    """`record` failed for a reason of its own; its transaction was rolled back. The cause is in `__cause__`."""


class RecordWaits(Exception):
    """`record` waited too long for a lock that another transaction holds. It was rolled back and is to be run again."""


class NotBegun(Exception):
    """A handler was cut off before its first line ran: nothing can have happened, so the claim is handed back."""


class Transport(Protocol):
    """How a message reaches its destination. Only `send` is required; the options say which others exist."""

    def send(self, attempt: Attempt, /) -> Awaitable[Answer | None]: ...


class CanValidate(Protocol):
    def validate(self, attempt: Attempt, /) -> Awaitable[None]:
        """Raise `Terminal` when the payload cannot be sent; nothing has gone out yet."""
        ...


class CanLookUp(Protocol):
    def lookup(self, attempt: Attempt, /) -> Awaitable[LookupAnswer]: ...


class NamesLimitKeys(Protocol):
    def limit_key(self, attempt: Attempt, /) -> str | None:
        """The part of the destination that a message goes to: a host, a tenant. None: the destination as a whole.

        Breaker, rests, rate and bug breaker apply to that part. It is stored and shown: never a secret."""
        ...


class CanClose(Protocol):
    def aclose(self) -> Awaitable[None]:
        """Let go of what is kept open. It may be used again after that, by another relay of this process."""
        ...


class Record(Protocol):
    """Your writes inside our settle transaction: all of it commits, or none."""

    def __call__(self, conn: Any, attempt: Attempt, settlement: Settlement, /) -> Awaitable[None]: ...


class Clock(Protocol):
    """Monotonic seconds of this process, for timeouts and leases. Wall-clock time comes from the database."""

    def monotonic(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


class Heard(NamedTuple):
    """What was said on a line. rung: there is new work. probed: the relay spoke to itself."""

    rung: bool
    probed: bool


class ListenConnection(Protocol):
    """A connection that listens for the doorbell."""

    async def wait(self, seconds: float) -> Heard:
        """Until something is said, at most so long; raises TransientFailure when the line is lost."""
        ...


class ClaimRequest(NamedTuple):
    """How many messages of one destination and priority level a relay can take now.

    since: it need not look for what became due earlier; None = it looks for everything.
    """

    destination: str
    level: int
    room: int
    since: datetime | None = None


class Place(NamedTuple):
    """A destination and a priority level: what waits there is one queue."""

    destination: str
    level: int


class LowWaterMark(NamedTuple):
    """Nothing is due at a place that became due before `since`. walked_seconds: how long it took to find that out."""

    place: Place
    since: datetime
    walked_seconds: float


class MendedLanes(NamedTuple):
    """mended: how many had been forgotten. looked_at: how many were judged. is_over: the last one was among them."""

    mended: int
    looked_at: int
    is_over: bool


class ClaimState(NamedTuple):
    """What the database says of a claimed message, some time after its claim."""

    fence: Fence
    cancel_requested: bool
    expired: bool
    has_evidence: bool


@dataclass(frozen=True, slots=True)
class Claimed:
    """attempts: what this worker holds now. expired: messages closed as expired instead of being handed out.

    gone: messages parked instead, because their rows are gone (MESSAGE_GONE).
    more: so much led nowhere that there may be more. held_back: where limits or a breaker let no more out now.
    """

    attempts: Sequence[Attempt] = ()
    expired: int = 0
    gone: int = 0
    more: bool = False
    held_back: frozenset[str] = frozenset()

    @property
    def found_something(self) -> bool:
        return bool(self.attempts or self.expired or self.gone or self.more)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A settlement with what the archive keeps about the attempt.

    text, stack, context: redacted already (`redrive.redact`). latency_ms: from dispatch to answer.
    kept_answer: with park reason unrecorded, what the destination said (`answers.to_json`).
    policy_version: which rules judged it (I52).
    suspect: its handler runs on in a thread: the next attempt of it runs alone, in a process that can be ended.
    """

    attempt: Attempt
    settlement: Settlement
    latency_ms: int | None = None
    text: str | None = None
    stack: str | None = None
    context: Mapping[str, Any] = field(default_factory=dict)
    kept_answer: Mapping[str, Any] | None = None
    policy_version: str | None = None
    suspect: bool = False


@dataclass(frozen=True, slots=True)
class HandOver:
    """With the settlement of these messages their lanes' next ones may be claimed at once, for so long (LANES.md)."""

    ids: AbstractSet[MessageId]
    lease_seconds: float


@dataclass(frozen=True, slots=True)
class Settled:
    """refused: claims that were lost meanwhile; their answers are kept as evidence (`late_answer`).

    settled: how many were written now. repeated: claims that an earlier, seemingly lost, commit had settled already.
    handed_over: claims of ours from now on. busy: claims that another transaction holds just now; nothing was written.
    """

    settled: int
    refused: Sequence[Fence] = ()
    repeated: Sequence[Fence] = ()
    handed_over: Sequence[Attempt] = ()
    busy: Sequence[Fence] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """What a person wants to know of a parked message. attempt: the message as a handler would see it."""

    id: int
    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Reaped:
    """requeued: claims that ran out and are pending again, in doubt, each a suspect.

    unconfirmed: nothing was looked for, because the database's clock is not where the relay expected it.
    """

    requeued: int
    unconfirmed: bool = False

    def __str__(self) -> str:
        return "the clock is not confirmed" if self.unconfirmed else f"{self.requeued} requeued"


@dataclass(frozen=True, slots=True)
class ClockLook:
    """One look at the database's clock. era: the latest jump that is known, 0 = none.

    unfinished: a jump of which something has still to be re-dated. ahead_seconds: how far in the future something was
    written, where that cannot be. jumps: the latest ones, newest first.
    """

    at: datetime
    era: int
    unfinished: int | None = None
    ahead_seconds: float | None = None
    jumps: Sequence[ClockJump] = ()


class Redated(NamedTuple):
    """One step of `redate`. next: the message to go on after; None = that was all.

    left_over: messages that other transactions hold. settled: no transaction that is older than the jump is open.
    """

    next: MessageId | None
    redated: int
    left_over: int
    settled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayInfo:
    """How a relay presents itself: shown by `status`, and used to see which destinations nobody handles (G-29).

    records: those of its destinations that have a `record`. money: those that move money.
    policies: destination to the version of its rules.
    rates: messages per second, concurrency_limits: messages in flight, of those that have such a limit over all relays.
    in_doubt: lookup, resend or hold. addresses: hash of where a destination is and as whom it is reached.
    effects_within_seconds: how long after the beginning of a send its effect may first show.
    """

    worker: WorkerId
    name: str
    host: str
    pid: int
    version: str
    destinations: Sequence[str]
    records: Sequence[str] = ()
    money: Sequence[str] = ()
    policies: Mapping[str, str] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)
    concurrency_limits: Mapping[str, int] = field(default_factory=dict)
    in_doubt: Mapping[str, str] = field(default_factory=dict)
    addresses: Mapping[str, str] = field(default_factory=dict)
    effects_within_seconds: Mapping[str, float] = field(default_factory=dict)
    suspects_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationState:
    """What the database says about a destination. pause_reason: `bug`, `epoch`, `retry_after`, or an operator's words.

    pause_seconds: how much longer it is paused; None = until somebody resumes it.
    breaker: closed, open, half_open or ramping. breaker_opened_at: when it last opened; what was claimed before that is
    not sent any more, but handed back.
    """

    name: str
    paused: bool
    pause_reason: str | None = None
    paused_by: str | None = None
    paused_at: datetime | None = None
    pause_seconds: float | None = None
    breaker: str = "closed"
    breaker_opened_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitKeyState:
    """What the database says about a limit key that is not plain; the fields mean what those of DestinationState mean.

    breaker_seconds: how much longer the present state of the breaker lasts; None = it has no end of its own.
    ramp_seconds: for how long it has been ramping; below 0 where the ramp follows a rest.
    """

    destination: str
    key: str
    paused: bool
    pause_reason: str | None = None
    paused_by: str | None = None
    paused_at: datetime | None = None
    pause_seconds: float | None = None
    breaker: str = "closed"
    breaker_opened_at: datetime | None = None
    breaker_seconds: float | None = None
    ramp_seconds: float | None = None
    breaker_code: str | None = None


class PutOff(NamedTuple):
    """A message that must not be sent yet, because of its limit key: for so many seconds.

    None: for as long as the key rests, is paused or is open, by what the database says."""

    seconds: float | None
    key: str


class Booked(NamedTuple):
    """Turns of a limit key with a rate. seconds: until the first of them. turns: how many there are."""

    seconds: float
    turns: int


class Sent(NamedTuple):
    """A money attempt that was begun, as a relay remembers it. at: when it was claimed, by the database's clock."""

    id: UUID
    attempt: int
    at: datetime


class Wal(NamedTuple):
    """How far a server had flushed its WAL when a relay last saw it, and when that was by its own clock."""

    system_identifier: int
    lsn: str
    at: datetime


class Witnessed(NamedTuple):
    """What the database says to what a relay remembers.

    restored: it did not know all of it, and has paused what moves money. unknown: how many attempts it did not know.
    closed: destinations that this relay must not claim for yet: it remembers nothing, and their statement has not been
    compared since it started.
    """

    restored: bool
    unknown: int
    wal: Wal
    closed: Sequence[str]


class RestoredDestination(NamedTuple):
    """A destination that `declare_restored` pauses. pending, dead: how many messages it puts in doubt."""

    destination: str
    pending: int
    dead: int
    paused_before: bool


class Opened(NamedTuple):
    """What `open_breaker` answers. opened: by this call. opened_at: when it last opened. open_seconds: for how long."""

    opened: bool
    opened_at: datetime | None
    open_seconds: float


def duty_hold_seconds(every_seconds: float) -> float:
    """For how long a duty belongs to whoever began it; then its holder is taken for dead, and somebody else runs it."""
    return min(max(2 * every_seconds, 10.0), 600.0)


def address_refused(destination: str, why: str) -> SettingsError:
    """What a relay is told that declares another address for a destination that moves money. why: of relay.sql."""
    word, next = {
        "in_doubt": (
            "messages of it are in doubt: asked at the new address, they would seem never to have been sent",
            "start the relay with the address as it was, and change it when nothing is in doubt (`redrive held list`)",
        ),
        "leased": (
            "messages of it are being sent at the address as it was",
            "stop the relays that have the address as it was, and wait until their claims have ended",
        ),
        "relay": (
            "another relay that was seen within a minute uses another address for it",
            "stop that relay (`redrive status` lists them), and start this one a minute after it was last seen",
        ),
    }[why]
    return SettingsError(f"The address (URL or account) of {destination!r} has changed, but {word}.", next=next)


class Store(Protocol):
    """What the relay and the duties need. A verb either happened as a whole or not at all."""

    async def claim(
        self,
        worker: WorkerId,
        claim_requests: Sequence[ClaimRequest],
        *,
        lease_seconds: float,
        now: datetime | None = None,
    ) -> Claimed: ...

    async def low_water(
        self, places: Sequence[tuple[Place, datetime | None]], *, now: datetime | None = None
    ) -> Sequence[LowWaterMark]:
        """Since when there can be something due, looking from the given moments on, or everywhere (None)."""
        ...

    async def claim_suspect(
        self,
        worker: WorkerId,
        destinations: Sequence[str],
        *,
        lease_seconds: float,
        now: datetime | None = None,
    ) -> Claimed: ...

    async def suspect_destinations(
        self, destinations: Sequence[str], *, after: str = "", limit: int = 100, now: datetime | None = None
    ) -> Sequence[str]:
        """For which of these `claim_suspect` would find something, by name: first those behind `after`, then the rest.

        A suspect that another transaction holds does not count.
        """
        ...

    async def settle(
        self,
        worker: WorkerId,
        outcomes: Sequence[Outcome],
        *,
        hand_over: HandOver | None = None,
        wait: bool = True,
        now: datetime | None = None,
    ) -> Settled:
        """Outcomes of claims, each fenced. Only what was delivered without a result hands over its lane.

        wait: false = what another transaction holds (a caller's open cancel) is left out, and named in `busy`.
        """
        ...

    async def settle_one(
        self,
        worker: WorkerId,
        outcome: Outcome,
        record: Record,
        *,
        on_step: Callable[[str], None],
        wait: bool = True,
        lock_seconds: float | None = None,
        now: datetime | None = None,
    ) -> Settled:
        """Fence, record, settle in one transaction. `on_step` hears fence, record and commit before each begins.

        wait: as of `settle`; what is busy is not recorded. lock_seconds: how long `record` may wait for a lock before
        RecordWaits is raised.
        """
        ...

    async def hand_back(
        self,
        worker: WorkerId,
        fences: Sequence[Fence],
        *,
        suspect: bool = False,
        wait: bool = True,
        put_off: Mapping[Fence, PutOff] | None = None,
        now: datetime | None = None,
    ) -> Sequence[Fence]:
        """Give back claims that were not begun; they spend nothing. Returns those that were handed back.

        suspect: each is to be run alone, in a process of its own. put_off: those that are due later.
        wait: false = what another transaction holds is left out, and not returned.
        """
        ...

    async def renew(
        self, worker: WorkerId, fences: Sequence[Fence], *, lease_seconds: float, now: datetime | None = None
    ) -> Sequence[Fence]:
        """Lengthen leases; returns those that are still ours. One that is locked by its own settle counts as ours."""
        ...

    async def check_claims(
        self, worker: WorkerId, fences: Sequence[Fence], *, now: datetime | None = None
    ) -> Sequence[ClaimState]:
        """What has happened to claimed messages since their claims; only of those that are still this worker's."""
        ...

    async def leases_of(self, worker: WorkerId) -> Sequence[Fence]:
        """Which claims a worker holds, whether or not its process knows of them."""
        ...

    async def is_leased(self, fence: Fence) -> bool: ...

    async def reap(
        self,
        *,
        limit: int,
        worker: WorkerId | None = None,
        expected: datetime | None = None,
        now: datetime | None = None,
    ) -> Reaped:
        """Requeue claims that ran out; with `worker`, all claims of a worker that is known to be dead.

        expected: what the database's clock says by the caller's reckoning; where it is off, nothing is reaped.
        """
        ...

    async def observe_clock(
        self, worker: WorkerId, *, steady: tuple[datetime, datetime] | None = None, now: datetime | None = None
    ) -> ClockLook:
        """What the database's clock says. steady: from when to when this relay has seen it go on without a jump."""
        ...

    async def clock_jumped(
        self,
        worker: WorkerId,
        *,
        era: int,
        offset_seconds: float,
        window_seconds: float | None,
        now: datetime | None = None,
    ) -> int:
        """Record a jump that this relay saw since `era`, unless another has; returns the era that holds now.

        window_seconds: the jump is at most so old; None where only what was written in the future tells of it.
        """
        ...

    async def redate(
        self, era: int, *, after: MessageId | None, limit: int, end: bool = False, now: datetime | None = None
    ) -> Redated:
        """One step over what waits, after the clock was set back. end: nothing of this jump is left to re-date."""
        ...

    async def expire(self, *, limit: int, now: datetime | None = None) -> int: ...

    async def fold_failures(self, *, limit: int, now: datetime | None = None) -> int:
        """Count failures that were parked since the last time into their groups; returns how many there were."""
        ...

    async def run_replay(self, *, every_seconds: float, limit: int, now: datetime | None = None) -> int | None:
        """One step of the replay that waits longest for one: how many messages it sent or judged. None: none is due."""
        ...

    async def take_requests(
        self,
        worker: WorkerId,
        destinations: Sequence[str],
        *,
        limit: int,
        hold_seconds: float,
        now: datetime | None = None,
    ) -> Sequence[Asked]:
        """What people want to know of these destinations; another relay is asked after so many seconds."""
        ...

    async def answer_request(
        self, worker: WorkerId, id: int, answer: Mapping[str, Any], *, now: datetime | None = None
    ) -> bool:
        """False where the answer came too late."""
        ...

    async def mend_lanes(self, *, lanes: int, now: datetime | None = None) -> MendedLanes:
        """Wake lanes that are free and have a message, and for which no relay would look; at most so many are judged.

        The next call goes on where this one ended.
        """
        ...

    async def cancel(
        self,
        id: MessageId,
        *,
        actor: str | None = None,
        reason: str | None = None,
        now: datetime | None = None,
    ) -> CancelAnswer: ...

    async def requeue(
        self,
        id: MessageId,
        *,
        actor: str,
        reason: str,
        stage: str | None = None,
        out_of_order: bool = False,
        now: datetime | None = None,
    ) -> None:
        """Dead to pending. Refused where later messages of its ordering key went out, unless that is meant."""
        ...

    async def confirm(
        self,
        id: MessageId,
        *,
        actor: str,
        reason: str,
        reference: str | None = None,
        now: datetime | None = None,
    ) -> None: ...

    async def deny(self, id: MessageId, *, actor: str, reason: str, now: datetime | None = None) -> None: ...

    async def repair(self, id: MessageId, *, actor: str, reason: str, now: datetime | None = None) -> None: ...

    async def discard(self, id: MessageId, *, actor: str, reason: str, now: datetime | None = None) -> None: ...

    async def skip(
        self,
        tenant: str,
        order_by: str,
        *,
        actor: str,
        reason: str,
        sequence: int | None = None,
        now: datetime | None = None,
    ) -> None:
        """Close the head of an ordering key that nobody has in hand; with `sequence`, only if that is the head."""
        ...

    async def pause(self, destination: str, *, actor: str, reason: str, now: datetime | None = None) -> bool: ...

    async def resume(self, destination: str, *, actor: str, reason: str, now: datetime | None = None) -> bool: ...

    async def pause_until(
        self, destination: str, *, actor: str, seconds: float, now: datetime | None = None
    ) -> float | None:
        """The destination asked for a rest: for how many seconds it is paused now; None where a person paused it."""
        ...

    async def open_breaker(
        self,
        destination: str,
        *,
        claimed_at: datetime,
        code: str,
        cool_off_seconds: float,
        cool_off_max_seconds: float,
        now: datetime | None = None,
    ) -> Opened:
        """It is down, says somebody whose message was claimed then. Nothing is claimed for it for a while."""
        ...

    async def close_breaker(self, destination: str, *, claimed_at: datetime, now: datetime | None = None) -> bool:
        """The probe that was claimed then was answered: the ramp begins. False where it was not the latest probe."""
        ...

    async def limit_keys(
        self, destinations: Sequence[str], *, limit: int, now: datetime | None = None
    ) -> Sequence[LimitKeyState]:
        """The limit keys of these destinations that rest, are paused, or whose breaker is not closed."""
        ...

    async def pause_key(
        self, destination: str, key: str, *, actor: str, reason: str, now: datetime | None = None
    ) -> bool:
        """`pause` of one limit key."""
        ...

    async def resume_key(
        self, destination: str, key: str, *, actor: str, reason: str, now: datetime | None = None
    ) -> bool:
        """`resume` of one limit key; what was put off for it is due at once."""
        ...

    async def rest_key(
        self, destination: str, key: str, *, actor: str, seconds: float, now: datetime | None = None
    ) -> float | None:
        """`pause_until` of one limit key."""
        ...

    async def open_key(
        self,
        destination: str,
        key: str,
        *,
        claimed_at: datetime,
        code: str,
        cool_off_seconds: float,
        cool_off_max_seconds: float,
        now: datetime | None = None,
    ) -> Opened:
        """`open_breaker` of one limit key."""
        ...

    async def probe_key(self, destination: str, key: str, id: MessageId, *, now: datetime | None = None) -> str:
        """Whether a message may go to a key whose breaker was open: go (as its probe), flows (it is closed), wait."""
        ...

    async def close_key(self, destination: str, key: str, *, claimed_at: datetime, now: datetime | None = None) -> bool:
        """`close_breaker` of one limit key."""
        ...

    async def book_key(
        self,
        destination: str,
        key: str,
        *,
        count: int,
        rate: float,
        most_seconds: float,
        now: datetime | None = None,
    ) -> Booked:
        """The next turns of a key of a destination with a rate: at most so many, none that begins later than that."""
        ...

    async def register(self, relay: RelayInfo, *, now: datetime | None = None) -> None:
        """Raises SettingsError where money would be moved at another address while something is open at the old one."""
        ...

    async def heartbeat(
        self, worker: WorkerId, *, listener: str = "off", now: datetime | None = None
    ) -> Sequence[DestinationState]:
        """Say that this relay lives, and whether it hears the doorbell; returns the state of its destinations."""
        ...

    async def announce_idle(
        self, worker: WorkerId, destinations: Sequence[str], *, seconds: float, now: datetime | None = None
    ) -> None:
        """Ask producers of these destinations to ring, for so long; of none, it is awake."""
        ...

    async def probe(self, worker: WorkerId) -> None:
        """Say something to whoever listens for this worker, on another connection than the one that listens."""
        ...

    async def deregister(self, worker: WorkerId) -> None: ...

    async def begin_duty(
        self, name: str, worker: WorkerId, *, every_seconds: float, now: datetime | None = None
    ) -> bool:
        """True when the duty is due and nobody else is at it; the caller then runs it and ends it."""
        ...

    async def end_duty(self, name: str, worker: WorkerId, *, result: str, now: datetime | None = None) -> None: ...

    async def forget_relays(self, *, after_seconds: float, now: datetime | None = None) -> int: ...

    async def vacuum(self) -> str:
        """Clear away dead rows where nobody else does it soon enough; returns in words what was done."""
        ...

    async def make_partitions(self, *, width_seconds: float, ahead: int, now: datetime | None = None) -> int: ...

    async def ranges(self) -> Sequence[tuple[datetime, datetime]]:
        """Start and end of every partition range, oldest first."""
        ...

    async def retire(self, starts_at: datetime, *, now: datetime | None = None) -> str:
        """Drop one range if nothing in it is open: retired, open, young or none."""
        ...

    async def now(self) -> datetime:
        """The database's clock."""
        ...

    async def history(self, id: MessageId) -> Sequence[HistoryEntry]: ...
