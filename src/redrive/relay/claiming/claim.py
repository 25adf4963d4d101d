"""One claim of a relay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from redrive.message import Attempt, Fence

if TYPE_CHECKING:
    from redrive.relay.backpressure.limit_key_queue import LimitKey


@dataclass(slots=True, eq=False)
class Claim:
    """claimed_at, lease_until: our monotonic clock; the latter moves with every renewal.

    known_at: when the database was last asked about its message. outdated: it has said since that the message must not
    be sent as it was claimed. lost: it has said that the claim is not ours any more. streak: how many of its lane this
    relay was handed in a row.
    limit_key: None where the destination has none. turn_at: its turn by the rate of its limit key, on our monotonic
    clock; None = it has none yet, or needs none. begun: it takes one of its key's slots. probe: of its limit key.
    """

    attempt: Attempt
    claimed_at: float
    lease_until: float
    known_at: float
    outdated: bool = False
    lost: bool = False
    streak: int = 0
    limit_key: LimitKey | None = None
    turn_at: float | None = None
    begun: bool = False
    probe: bool = False

    @property
    def fence(self) -> Fence:
        return self.attempt.fence
