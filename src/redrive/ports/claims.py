"""Claims: taking messages, keeping them and giving them back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

from redrive.message import Attempt, Fence, WorkerId
from redrive.ports.clock import Now


class Place(NamedTuple):
    """A destination and a priority level: what waits there is one queue."""

    destination: str
    level: int


class ClaimRequest(NamedTuple):
    """How many messages of one destination and priority level a relay can take now.

    since: nothing that became due earlier needs to be looked for; None = look for everything.
    """

    destination: str
    level: int
    room: int
    since: datetime | None = None


class LowWaterMark(NamedTuple):
    """Nothing at a place became due before `since`. walked_seconds: how long the search took."""

    place: Place
    since: datetime
    walked_seconds: float


@dataclass(frozen=True, slots=True)
class Claimed:
    """attempts: what this worker holds now. expired: messages closed as expired instead of being handed out.

    gone: messages parked instead, because their rows are gone (MESSAGE_GONE).
    more: the search ended at its limit, so there may be more. held_back: destinations at a limit or an open breaker.
    """

    attempts: Sequence[Attempt] = ()
    expired: int = 0
    gone: int = 0
    more: bool = False
    held_back: frozenset[str] = frozenset()

    @property
    def found_something(self) -> bool:
        return bool(self.attempts or self.expired or self.gone or self.more)


class ClaimState(NamedTuple):
    """What the database says of a claimed message, some time after its claim."""

    fence: Fence
    cancel_requested: bool
    expired: bool
    has_evidence: bool


class PutOff(NamedTuple):
    """How long a message waits because of its limit key. None: as long as the key is paused or its breaker is open."""

    seconds: float | None
    key: str


class ClaimVerbs(Protocol):
    """Verbs of a claim; each is fenced by the worker that holds it."""

    async def claim(
        self, worker: WorkerId, claim_requests: Sequence[ClaimRequest], *, lease_seconds: float, now: Now = None
    ) -> Claimed: ...

    async def low_water(
        self, places: Sequence[tuple[Place, datetime | None]], *, now: Now = None
    ) -> Sequence[LowWaterMark]:
        """The earliest moment at which something can be due, searched from the given moment on (None: always)."""

    async def claim_suspect(
        self, worker: WorkerId, destinations: Sequence[str], *, lease_seconds: float, now: Now = None
    ) -> Claimed: ...

    async def suspect_destinations(
        self, destinations: Sequence[str], *, after: str = "", limit: int = 100, now: Now = None
    ) -> Sequence[str]:
        """Those of the destinations that have a suspect to claim, by name: first those behind `after`, then the rest.

        A suspect that another transaction has locked does not count.
        """

    async def check_claims(self, worker: WorkerId, fences: Sequence[Fence], *, now: Now = None) -> Sequence[ClaimState]:
        """The present state of claimed messages, for those claims that this worker still has."""

    async def renew(
        self, worker: WorkerId, fences: Sequence[Fence], *, lease_seconds: float, now: Now = None
    ) -> Sequence[Fence]:
        """Extend leases; returns those that are still this worker's, including one that its own settle has locked."""

    async def hand_back(
        self,
        worker: WorkerId,
        fences: Sequence[Fence],
        *,
        suspect: bool = False,
        wait: bool = True,
        put_off: Mapping[Fence, PutOff] | None = None,
        now: Now = None,
    ) -> Sequence[Fence]:
        """Give back claims that were not begun; no attempt is spent. Returns those that were handed back.

        suspect: run each next in a child process of its own. put_off: those that are due later.
        wait: false = skip what another transaction has locked.
        """

    async def leases_of(self, worker: WorkerId) -> Sequence[Fence]:
        """All claims of a worker, including those whose reply its process never received."""

    async def is_leased(self, fence: Fence) -> bool: ...
