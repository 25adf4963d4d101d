"""One destination in one relay: claims that wait for a slot, and slots that run.

A slot is a task that works off the queue until it is empty, and one timekeeper keeps the deadlines of all slots: a
message costs neither a task nor a timer.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime

from redrive.app import Destination
from redrive.message import Attempt
from redrive.policy import Breaker
from redrive.ports import Outcome
from redrive.relay.backpressure import breaker
from redrive.relay.backpressure.breaker import Count
from redrive.relay.backpressure.bug_breaker import BugBreaker, BugsOfKeys
from redrive.relay.backpressure.limit_key_queue import KeyedWaiting
from redrive.relay.claiming.capacity import Capacity
from redrive.relay.claiming.claim import Claim
from redrive.relay.dispatching.dispatch import Dispatcher
from redrive.relay.wakeup.idle import Idleness
from redrive.relay.wakeup.poll_schedule import PollSchedule

QUICK_SECONDS = 0.001
DISPATCH_STEPS = 3  # of one attempt at most, each with a timeout: lookup, validation, send


@dataclass(slots=True, eq=False)
class Slot:
    """began, deadline: when its dispatch began and must be over; None between two. cut: why it was cancelled.
    abandoned: its handler ignored that; what it still answers is refused. asking: the database is asked whether it may
    be sent, so nothing was begun."""

    task: asyncio.Task[None] | None = None
    claim: Claim | None = None
    began: float = 0.0
    deadline: float | None = None
    cut: str | None = None
    abandoned: bool = False
    asking: bool = False


@dataclass(eq=False)
class DestinationQueue:
    """settling: outcomes that are being written one by one. paused: until paused_until (monotonic) or a resume.
    sifting: claims are being checked against their limit keys. pausing, opening: pauses and a breaker of ours that the
    database does not know yet. opened_at: last opening of the breaker, by the database's clock. unwitnessed: it moves
    money, and the database was not yet asked whether it knows what was sent (`witness.py`)."""

    destination: Destination
    dispatcher: Dispatcher
    capacity: Capacity
    poll: PollSchedule
    settling: int = 0
    waiting: deque[Claim] | KeyedWaiting = field(default_factory=deque)
    slots: dict[Slot, None] = field(default_factory=dict)  # in the order in which they began
    bugs: BugBreaker = field(default_factory=BugBreaker)
    bugs_of_keys: BugsOfKeys = field(default_factory=BugsOfKeys)
    idleness: Idleness = field(default_factory=Idleness)
    paused: bool = False
    paused_until: float | None = None
    pausing: int = 0
    sifting: bool = False
    opening: bool = False
    unwitnessed: bool = False
    opened_at: datetime | None = None
    count: Count | None = field(init=False)
    validates: bool = field(init=False)

    def __post_init__(self) -> None:
        self.count = Count(self.destination.breaker) if self.destination.breaker else None
        self.validates = getattr(self.destination.transport, "validate", None) is not None
        if self.destination.limit_key is not None:
            self.waiting = KeyedWaiting(self.destination)

    @property
    def keyed(self) -> KeyedWaiting | None:
        return self.waiting if isinstance(self.waiting, KeyedWaiting) else None

    @property
    def is_closed(self) -> bool:
        """Nothing is claimed or begun."""
        return self.paused or self.opening or self.unwitnessed

    @property
    def breaker_rules(self) -> Breaker:
        """Defaults where it declares none: an operator may have let out a probe after a Retry-After."""
        return self.destination.breaker or Breaker()

    @property
    def running(self) -> int:
        return sum(slot.claim is not None for slot in self.slots)

    def has_free_slot(self, now: float) -> bool:
        return self.may_begin(now) > 0 and len(self.slots) < self.destination.concurrency

    def may_begin(self, now: float) -> int:
        """How many of the waiting could begin now, had they a slot."""
        return self.waiting.may_begin(now) if isinstance(self.waiting, KeyedWaiting) else len(self.waiting)

    def peek(self, now: float) -> Claim | None:
        if isinstance(self.waiting, KeyedWaiting):
            return self.waiting.peek(now)
        return self.waiting[0] if self.waiting else None

    def take(self, claim: Claim, now: float) -> Claim:
        """Takes what `peek` has just returned."""
        if isinstance(self.waiting, KeyedWaiting):
            self.waiting.begin(claim, now)
        else:
            self.waiting.popleft()
        return claim

    def end(self, claim: Claim, now: float, *, outcome: Outcome | None = None, began: float | None = None) -> None:
        """Frees a slot of its limit key."""
        if self.keyed is not None:
            answer = None if outcome is None else outcome.settlement.answer
            answered = breaker.answered(answer, self.breaker_rules)
            self.keyed.end(claim, now, latency_seconds=None if began is None else now - began, answered=answered)

    def is_quick(self) -> bool:
        """Whether checking after every message if others are owed the slot would cost more than the message."""
        return self.capacity.latency_seconds is not None and self.capacity.latency_seconds < QUICK_SECONDS

    def measure(self, now: float, *, horizon_seconds: float) -> Capacity:
        """Updates and returns its capacity; a closed destination counts as full."""
        keyed = self.keyed
        self.capacity.waiting = len(self.waiting) if keyed is None else keyed.soon(now, horizon_seconds=horizon_seconds)
        self.capacity.put_aside = len(self.waiting) - self.capacity.waiting
        self.capacity.lacks_threads = not self.dispatcher.has_threads()
        self.capacity.running = self.destination.concurrency if self.is_closed else self.running + self.settling
        return self.capacity

    def overdue(self, now: float) -> list[Slot]:
        return [slot for slot in self.slots if slot.deadline is not None and slot.deadline < now]

    def claims(self) -> list[Claim]:
        return [*self.waiting, *(slot.claim for slot in self.slots if slot.claim is not None)]

    def deadline_seconds(self, claim: Claim) -> float:
        """One timeout each for the send and for a lookup and a validation before it."""
        return self.destination.timeout_seconds * (1 + self.steps_before(claim))

    def steps_before(self, claim: Claim) -> int:
        """How many steps with a timeout of their own come before the send."""
        return claim.attempt.in_doubt + self.validates

    def take_waiting(self) -> list[Claim]:
        taken = list(self.waiting)
        self.waiting.clear()
        return taken

    def take_stale(self) -> list[Claim]:
        """Claims that have not begun, made before the breaker opened."""
        if self.opened_at is None:
            return []
        claims = self.take_waiting()
        self.waiting.extend(claim for claim in claims if not self.is_stale(claim.attempt))
        return [claim for claim in claims if self.is_stale(claim.attempt)]

    def is_stale(self, attempt: Attempt) -> bool:
        return self.opened_at is not None and attempt.claimed_at <= self.opened_at
