"""Claims: taking messages, keeping them and giving them back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

from redrive.message import Attempt, Fence, WorkerId
from redrive.ports.clock import Now


class Place(NamedTuple):
    """What waits there is one queue."""

    destination: str
    level: int


class ClaimRequest(NamedTuple):
    """How many messages a relay can take now. since: nothing became due earlier; None = look for everything."""

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
    """expired: messages closed as expired instead of being handed out. gone: parked instead (MESSAGE_GONE).

    more: the search ended at its limit. held_back: destinations at a limit or an open breaker.
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
    """Each is fenced by the worker that holds the claim."""

    async def claim(
        self, worker: WorkerId, claim_requests: Sequence[ClaimRequest], *, lease_seconds: float, now: Now = None
    ) -> Claimed: ...

    async def low_water(
        self, places: Sequence[tuple[Place, datetime | None]], *, now: Now = None
    ) -> Sequence[LowWaterMark]:
        """The earliest moment at which something can be due, searched from the given moment on."""

    async def claim_suspect(
        self, worker: WorkerId, destinations: Sequence[str], *, lease_seconds: float, now: Now = None
    ) -> Claimed: ...

    async def suspect_destinations(
        self, destinations: Sequence[str], *, after: str = "", limit: int = 100, now: Now = None
    ) -> Sequence[str]:
        """Those that have a suspect to claim, which no transaction has locked: first those behind `after`, then the
        rest.
        """

    async def check_claims(self, worker: WorkerId, fences: Sequence[Fence], *, now: Now = None) -> Sequence[ClaimState]:
        """For those claims that this worker still has."""

    async def renew(
        self, worker: WorkerId, fences: Sequence[Fence], *, lease_seconds: float, now: Now = None
    ) -> Sequence[Fence]:
        """Returns those that are still this worker's, including one that its own settle has locked."""

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

        suspect: run each next in a child process. put_off: those that are due later. wait: false = skip what is locked.
        """

    async def leases_of(self, worker: WorkerId) -> Sequence[Fence]:
        """Including those whose reply the worker's process never received."""

    async def is_leased(self, fence: Fence) -> bool: ...
