"""One claim of a relay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from redrive.message import Attempt, Fence

if TYPE_CHECKING:
    from redrive.relay.backpressure.limit_key_queue import LimitKey


@dataclass(slots=True, eq=False)
class Claim:
    """claimed_at, lease_until, turn_at: monotonic. known_at: when the database was last asked about it.

    outdated: it must not be sent as it was claimed. lost: the claim is not ours any more. streak: messages of its lane
    that this relay was handed in a row. turn_at: its turn by the rate of its limit key; None = none yet, or none
    needed. begun: it holds a slot of its key. probe: of its limit key.
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
