"""What one claim found, by destination: when to poll each again, and whether it has run dry."""

from collections.abc import Mapping, Sequence

from redrive.ports import Claimed, ClaimRequest
from redrive.relay.claiming.capacity import looked_everywhere, note_quiet
from redrive.relay.dispatching.destination_queue import DestinationQueue
from redrive.relay.wakeup.doorbell import Doorbell


def note_findings(
    queues: Mapping[str, DestinationQueue],
    claimed: Claimed,
    requests: Sequence[ClaimRequest],
    doorbell: Doorbell,
    *,
    asked_at: float,
    now: float,
) -> None:
    counts = _counts(claimed)
    more = bool(claimed.more or claimed.expired)
    for name, here in _by_destination(requests).items():
        queue, taken = queues[name], counts.get(name, {})
        if name in claimed.held_back:
            queue.poll.held_back(now, found=name in counts, asked_at=asked_at)
            queue.idleness.held_back()
            continue
        note_quiet(queue.capacity, here, taken)
        if taken or more:
            full = any(taken.get(request.level, 0) >= request.room for request in here)
            queue.idleness.found(sum(taken.values()), now, full=full)
            # Poll again at once, unless the queue was drained and producers will ring.
            if not more and looked_everywhere(queue.capacity) and doorbell.rings_for(name):
                queue.poll.found_all(now, asked_at=asked_at)
            else:
                queue.poll.found_something()
        elif looked_everywhere(queue.capacity):
            queue.poll.found_nothing(now, asked_at=asked_at)
            queue.idleness.found_nothing(now)
    doorbell.looked(found=claimed.found_something)


def _counts(claimed: Claimed) -> dict[str, dict[int, int]]:
    counts: dict[str, dict[int, int]] = {}
    for attempt in claimed.attempts:
        levels = counts.setdefault(attempt.destination, {})
        levels[attempt.level] = levels.get(attempt.level, 0) + 1
    return counts


def _by_destination(requests: Sequence[ClaimRequest]) -> dict[str, list[ClaimRequest]]:
    found: dict[str, list[ClaimRequest]] = {}
    for request in requests:
        found.setdefault(request.destination, []).append(request)
    return found
