"""Which messages of the ordering keys may go: what LANES.md says of heads, without its locks and tokens.

The model runs one verb at a time, so nobody can be forgotten: it looks at every lane whenever it is asked. What tokens
decide in PostgreSQL beyond that is whose turn it is, and that follows from when a lane was released last.
The SQL beside it: `free_heads` and `next_heads` in verbs/lanes.sql, `lane_shares` in verbs/claim.sql.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from tests.model_store.transitions import Lane, Lease, Parked, Pending, has_expired, may_just_end


def free_heads(pending: Iterable[Pending], leases: Iterable[Lease], parked: Iterable[Parked]) -> dict[Lane, Pending]:
    """The lowest pending message of each lane, where nothing of the lane is leased and nothing before it halts."""
    heads: dict[Lane, Pending] = {}
    for place in pending:
        if place.lane is not None and (place.lane not in heads or _before(place, heads[place.lane])):
            heads[place.lane] = place
    for lease in leases:
        if lease.lane is not None:
            heads.pop(lease.lane, None)
    for halting in parked:
        if halting.lane in heads and halting.halts and _before(halting, heads[halting.lane]):
            del heads[halting.lane]
    return heads


def _before(one: Pending | Parked, other: Pending) -> bool:
    assert one.sequence is not None
    assert other.sequence is not None
    return one.sequence < other.sequence


def waits_since(head: Pending, released: Mapping[Lane, datetime]) -> datetime:
    """Lanes take turns: one that was released takes its turn from then on, however old its messages are."""
    assert head.lane is not None
    return max(head.due_at, released.get(head.lane, head.due_at))


def share_of_lanes(room: int, heads: Sequence[datetime], others: Sequence[datetime]) -> int:
    """Half of a room, and what too few others leave; the odd one is for whoever waits longer. Given: since when."""
    if not heads or not others:
        return room if heads else 0
    half = (room + (heads[0] <= others[0])) // 2
    return max(half, room - len(others))


def may_follow(head: Pending, destination: str, now: datetime) -> bool:
    """Whether the worker that delivered the message before it, to this destination, may have it at once."""
    over = has_expired(head, now) and may_just_end(head)
    return head.destination == destination and head.due_at <= now and not head.suspect and not over
