"""How many messages of which destination and level to ask for. Pure.

A destination gets its free slots plus what it works off within the horizon, so that nothing waits long in one process
while another is idle. Only its free slots: a destination with limits over all relays (what waits in one relay would be
missing in another), and one that holds what is in doubt, or moves money without a lookup: all that a relay has claimed
when it dies is in doubt, begun or not.
The room is split 6:3:1 over the priority levels, so none starves; a level that had too little last time is asked for
little. With less room than levels, levels take turns by the same weights.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from redrive.message import LEVELS
from redrive.ports import ClaimRequest

SHARES: Final = {0: 6, 1: 3, 2: 1}
QUIET_SHARE: Final = 0.02  # of its usual share, for a level that had too little the last time
QUIET_TURN: Final = 0.1  # the same where levels take turns: each turn is a look of its own


@dataclass
class Capacity:
    """One destination in one relay.

    latency_seconds: moving average of a dispatch; None before the first. quiet: levels that had too little last time.
    credit: turns that each level has saved up. ahead: it claims more than it can begin at once. only_begun: it claims
    nothing that it cannot begin at once: a crash would leave that in doubt. put_aside: how many more wait for full
    limit keys. skims: some of the last claim were put off; in both cases ask for as much as possible, to reach those
    behind. lacks_threads: what it claims goes to a child process, a few at a time. busy: outcomes that wait for a
    transaction which is not ours; they occupy no slot, but count towards what it may hold claims on.
    """

    destination: str
    concurrency: int
    waiting: int = 0
    running: int = 0
    latency_seconds: float | None = None
    quiet: set[int] = field(default_factory=set)
    credit: dict[int, float] = field(default_factory=lambda: dict.fromkeys(LEVELS, 0.0))
    ahead: bool = True
    only_begun: bool = False
    put_aside: int = 0
    skims: bool = False
    lacks_threads: bool = False
    busy: int = 0

    def target(self, *, claim_max: int, horizon_seconds: float) -> int:
        """How many to have claimed: all slots busy, and enough behind them for the horizon."""
        if (self.skims or self.put_aside) and not self.lacks_threads:
            return max(claim_max - self.put_aside, 0)
        if self.latency_seconds is None or not self.ahead or self.lacks_threads:
            return min(self.concurrency, claim_max)
        ahead = self.concurrency * horizon_seconds / max(self.latency_seconds, 1e-6)
        return min(self.concurrency + int(min(ahead, claim_max)), claim_max)

    def room(self, *, claim_max: int, horizon_seconds: float) -> int:
        """0 unless slots would be idle or half of the target is free: small claims cost as much as large ones."""
        target = self.target(claim_max=max(claim_max - self.busy, 0), horizon_seconds=horizon_seconds)
        free = target - self.waiting - self.running
        if self.only_begun and self.waiting:
            return 0
        idle_slots = self.waiting == 0 and self.running < self.concurrency
        return max(free, 0) if idle_slots or 2 * free >= target else 0

    def note_latency(self, seconds: float) -> None:
        previous = self.latency_seconds
        self.latency_seconds = seconds if previous is None else 0.9 * previous + 0.1 * seconds


def claim_requests(
    capacities: Sequence[Capacity], *, claim_max: int, horizon_seconds: float, free_slots: int | None = None
) -> list[ClaimRequest]:
    """One claim: every destination that has room, split over the levels.

    In all at most `claim_max`, but one for each, so that no claim is so large that all wait for it. free_slots: how
    many the process can begin, shared by the destinations with `only_begun`; None = no limit.
    """
    wanted: list[tuple[Capacity, int]] = []
    for capacity in capacities:
        room = capacity.room(claim_max=claim_max, horizon_seconds=horizon_seconds)
        if capacity.only_begun and free_slots is not None:
            room = min(room, free_slots)
            free_slots -= room
        wanted.append((capacity, room))
    share = min(claim_max / max(sum(room for _, room in wanted), 1), 1.0)
    return [part for capacity, room in wanted if room for part in _split(capacity, max(int(room * share), 1))]


def _split(capacity: Capacity, room: int) -> list[ClaimRequest]:
    if len(capacity.quiet) == len(LEVELS):
        capacity.quiet.clear()  # nothing anywhere: this look starts afresh
    shares = _shares(capacity, room) if room >= len(LEVELS) else _turns(capacity, room)
    return [ClaimRequest(capacity.destination, level, share) for level, share in shares.items()]


def _shares(capacity: Capacity, room: int) -> dict[int, int]:
    """At least one for every level; the busiest gets the rest."""
    weights = _weights(capacity, QUIET_SHARE)
    shares = {level: max(int(room * weights[level]), 1) for level in LEVELS}
    busiest = max(LEVELS, key=lambda level: weights[level])
    shares[busiest] = room - sum(share for level, share in shares.items() if level != busiest)
    return shares


def _turns(capacity: Capacity, room: int) -> dict[int, int]:
    """Weighted round robin over the levels."""
    weights = _weights(capacity, QUIET_TURN)
    turns: dict[int, int] = {}
    for _ in range(room):
        for level in LEVELS:
            capacity.credit[level] += weights[level]
        level = max(LEVELS, key=lambda level: capacity.credit[level])
        capacity.credit[level] -= 1
        turns[level] = turns.get(level, 0) + 1
    return turns


def _weights(capacity: Capacity, quiet_share: float) -> dict[int, float]:
    weights = {level: SHARES[level] * (quiet_share if level in capacity.quiet else 1) for level in LEVELS}
    total = sum(weights.values())
    return {level: weight / total for level, weight in weights.items()}


def note_quiet(capacity: Capacity, asked: Sequence[ClaimRequest], taken: Mapping[int, int]) -> None:
    """Remember which levels had less than was asked for."""
    looked_at = {room.level for room in asked}
    short = {room.level for room in asked if taken.get(room.level, 0) < room.room}
    capacity.quiet = capacity.quiet - looked_at | short


def looked_everywhere(capacity: Capacity) -> bool:
    """Every level was looked at, and none had enough."""
    return len(capacity.quiet) == len(LEVELS)
