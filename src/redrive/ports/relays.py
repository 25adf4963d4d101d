"""Relays: registration, heartbeat, the doorbell, and what a relay remembers of money that it sent."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple, Protocol
from uuid import UUID

from redrive.errors import SettingsError
from redrive.message import WorkerId
from redrive.ports.clock import Now
from redrive.ports.destinations import DestinationState


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayInfo:
    """What a relay registers: shown by `status`, and used to find destinations without a relay (G-29).

    records, money: those of its destinations that have a `record`, or move money. policies: versions of their rules.
    rates: messages per second, concurrency_limits: messages in flight, over all relays. in_doubt: lookup, resend or
    hold. addresses: hashes of URL and account. effects_within_seconds: how long after a send its effect may first show.
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


class Heard(NamedTuple):
    """rung: there is new work. echoed: this relay received its own echo."""

    rung: bool
    echoed: bool


class ListenConnection(Protocol):
    """Listens for the doorbell."""

    async def wait(self, seconds: float) -> Heard:
        """Raises TransientFailure when the connection is lost."""


class Sent(NamedTuple):
    """A begun attempt at a money destination, from the relay's witness file. at: when the database claimed it."""

    id: UUID
    attempt: int
    at: datetime


class Wal(NamedTuple):
    """How far a server had flushed its WAL when a relay last saw it, and when that was by its own clock."""

    system_identifier: int
    lsn: str
    at: datetime


class Witnessed(NamedTuple):
    """restored: the database lacks some of what the relay remembers, and has paused what moves money. unknown: how many
    attempts it lacks. closed: destinations that this relay must not claim for yet: it remembers nothing, and no
    statement of them has been compared since it started.
    """

    restored: bool
    unknown: int
    wal: Wal
    closed: Sequence[str]


class RestoredDestination(NamedTuple):
    """pending, dead: how many messages `declare_restored` puts in doubt."""

    destination: str
    pending: int
    dead: int
    paused_before: bool


def address_refused(destination: str, why: str) -> SettingsError:
    """why: the detail of relay.sql."""
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


class RelayVerbs(Protocol):
    async def register(self, relay: RelayInfo, *, now: Now = None) -> None:
        """SettingsError where money would be moved at another address while something is open at the old one."""

    async def heartbeat(
        self, worker: WorkerId, *, listener: str = "off", now: Now = None
    ) -> Sequence[DestinationState]:
        """Returns the state of the relay's destinations."""

    async def announce_idle(
        self, worker: WorkerId, destinations: Sequence[str], *, seconds: float, now: Now = None
    ) -> None:
        """Ask producers of these destinations to notify, for so long. No destinations: the relay is awake."""

    async def echo(self, worker: WorkerId) -> None:
        """Notify this worker's own listening connection over another connection."""

    async def deregister(self, worker: WorkerId) -> None: ...

    async def forget_relays(self, *, after_seconds: float, now: Now = None) -> int: ...
