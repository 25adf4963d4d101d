"""The limits of a destination, counted from outside: how many at once in a process and over all, how many a second, one
probe."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

from redrive.message import MessageId
from tests.model_store.destinations import Destination
from tests.model_store.transitions import Lease
from tests.simulation.config import Config
from tests.simulation.loop import Process
from tests.simulation.rail import Sent


class Allowance:
    """known: what the store knows of a destination."""

    def __init__(self, config: Config, known: Callable[[str], Destination]) -> None:
        self._limit = config.global_concurrency
        self._rate = config.rate
        self._known = known
        self._of_a_process = config.limits.concurrency
        self._of_a_destination = config.concurrency
        self._sending: Counter[tuple[Process, str]] = Counter()
        self._leases: dict[MessageId, Lease] = {}
        self._claims: dict[str, list[float]] = {}

    def claim(self, lease: Lease, now: float) -> str | None:
        """What is wrong with this claim, if anything."""
        destination = self._known(lease.destination)
        if not destination.is_open(lease.claimed_at):
            return "claimed while its destination is paused or its breaker open:"
        others = [other for other in self._leases.values() if other.destination == lease.destination]
        self._leases[lease.id] = lease
        claims = self._claims.setdefault(lease.destination, [])
        claims.append(now)
        if self._limit is not None and len(others) >= self._limit:
            return "more at once than its destination allows:"
        if self._rate is not None and sum(now - at < 1.0 for at in claims) > math.ceil(self._rate):
            return "more a second than its destination allows:"
        opened_at = destination.breaker_opened_at
        probing = destination.breaker_state(lease.claimed_at) == "half_open"
        if probing and opened_at is not None and any(other.claimed_at > opened_at for other in others):
            return "a second probe of a destination that is down:"
        return None

    def end(self, lease: Lease) -> None:
        self._leases.pop(lease.id, None)

    def begin_send(self, sent: Sent) -> str | None:
        """What is wrong with sending this beside what its process sends already, if anything."""
        if sent.deaf:  # given up by its relay, it is not over
            return None
        self._sending[sent.process, sent.attempt.destination] += 1
        if self._sending[sent.process, sent.attempt.destination] > self._of_a_destination:
            return "more at once than its destination allows in a process:"
        of_all = sum(count for (process, _), count in self._sending.items() if process is sent.process)
        return "more at once than a process may:" if of_all > self._of_a_process else None

    def end_send(self, sent: Sent) -> None:
        if not sent.deaf:
            self._sending[sent.process, sent.attempt.destination] -= 1
