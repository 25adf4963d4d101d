"""What waits for a destination whose transport names limit keys (G-31). Pure: the time is an argument.

Keys take turns, and none takes more slots than its share: a host that hangs costs its own slots and does not block
others. What cannot begin soon is put off (`late`, `blocked`) to the date at which it can, so that it neither fills the
queue nor is claimed in a circle.
"""

import hashlib
import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final

from redrive.app import Destination
from redrive.message import Attempt
from redrive.ports import PutOff
from redrive.relay.backpressure.breaker import Count
from redrive.relay.backpressure.bug_breaker import BugBreaker
from redrive.relay.claiming.claim import Claim

KEY_MAX: Final = 100
PLAIN_MAX: Final = 10_000  # keys that are remembered although nothing is to be said of them
RAMP_SECONDS: Final = 10.0
FIRST_SLOTS: Final = 2  # of a key that has not answered yet; one more with each answer, half with each that is missing
PAUSED_SECONDS: Final = 3600.0  # for how long at a time what waits for a paused key is put off; a resume ends it
WAIT_SECONDS: Final = 2.0  # what waits for a slot of its key for longer than this is put off
LATE_SECONDS_MAX: Final = 60.0  # and for how long, at most: the key may have become quicker meanwhile
TURN_SECONDS_MAX: Final = 3600.0
UNNAMED: Final = "(destination)"  # of messages for which the transport names no key


def bounded(name: str) -> str:
    """The stored key: printable, at most 100 characters; a longer one keeps its beginning and a hash."""
    shown = "".join(character if character.isprintable() else "?" for character in name)
    if shown == name and len(name) <= KEY_MAX:
        return name
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:20]
    return f"{shown[: KEY_MAX - 21]}~{digest}"


class LimitKey:
    """One key in one relay. Times are monotonic, but opened_at is the database's.

    paused: until paused_until or a resume. breaker: closed, open (until breaker_until), half_open. ramp_from: since
    when it ramps. writing: how many of our changes the database does not know yet.
    """

    def __init__(self, name: str, destination: Destination, *, slots: int, is_named: bool = True) -> None:
        self.name = name
        self.is_named = is_named
        self.slots = slots
        self.earned = min(FIRST_SLOTS, slots) if is_named else slots
        self.leaves_half = destination.key_concurrency is None and destination.concurrency > 1
        self.rate = destination.rate
        self.waiting: deque[Claim] = deque()
        self.is_queued = False
        self.running = 0
        self.latency_seconds: float | None = None
        self.moved_at = 0.0  # when one of it last began or ended
        self.put_off_until = 0.0  # the last date that was given to what was put off for want of a slot or a turn
        self.paused = False
        self.paused_until: float | None = None
        self.breaker = "closed"
        self.breaker_until: float | None = None
        self.opened_at: datetime | None = None
        self.ramp_from: float | None = None
        self.writing = 0
        self.count = Count(destination.breaker) if destination.breaker else None
        self.bugs = BugBreaker()

    def blocked_seconds(self, now: float) -> float | None:
        """None: it may send."""
        if self.paused and (self.paused_until is None or self.paused_until > now):
            return PAUSED_SECONDS if self.paused_until is None else self.paused_until - now
        if self.breaker == "open" and self.breaker_until is not None and self.breaker_until > now:
            return self.breaker_until - now
        return None

    def needs_probe(self, now: float) -> bool:
        return self.breaker == "half_open" or (self.breaker == "open" and self.blocked_seconds(now) is None)

    def capacity(self, now: float) -> int:
        if self.blocked_seconds(now) is not None:
            return 0
        if self.needs_probe(now):
            return 1
        if self.ramp_from is not None and now < self.ramp_from + RAMP_SECONDS:
            return min(self.earned, int(2 ** max(math.floor(now - self.ramp_from), 0)))
        return self.earned

    def saw(self, *, answered: bool | None) -> None:
        """Slots are earned by answers: a host that hangs from its first message on costs two."""
        if answered is not None and self.is_named:
            self.earned = min(self.earned + 1, self.slots) if answered else max(self.earned // 2, 1)

    def has_turn(self, claim: Claim, now: float) -> bool:
        return self.rate is None or (claim.turn_at is not None and claim.turn_at <= now)

    def may_begin(self, now: float, *, free: int) -> int:
        """How many of the waiting. free: unused slots of the destination.

        Without a declared share a key takes another slot only while more are free than it has: however many keys hang,
        each leaves half of what there was to the next.
        """
        room = self.capacity(now) - self.running
        if self.leaves_half and self.is_named:
            room = min(room, (free - self.running + 1) // 2)
        free = room
        if free <= 0:
            return 0
        count = 0
        for claim in self.waiting:
            if count == free or not self.has_turn(claim, now):
                break
            count += 1
        return count

    def ahead(self, now: float, *, horizon_seconds: float) -> int:
        """How many without a slot it works off within the horizon; 0 before its first answer."""
        pace = self.pace(now) if self.latency_seconds is not None else 0.0
        return int(min(horizon_seconds / pace, 1e6)) if pace > 0 else 0

    def pace(self, now: float) -> float:
        """Seconds between two ends; for one that hangs, as long as it has hung already."""
        seconds = self.latency_seconds or 0.0
        if self.running:
            seconds = max(seconds, now - self.moved_at)
        return seconds / max(self.capacity(now), 1)

    @property
    def is_plain(self) -> bool:
        return not (
            self.paused
            or self.breaker != "closed"
            or self.ramp_from is not None
            or self.writing
            or self.running
            or self.waiting
        )


class KeyedWaiting:
    """Replaces the deque of claims of a destination without limit keys."""

    def __init__(self, destination: Destination) -> None:
        self.keys: dict[str, LimitKey] = {}
        self._destination = destination
        self._unnamed = LimitKey(UNNAMED, destination, slots=destination.concurrency, is_named=False)
        self._queue: deque[LimitKey] = deque()  # those with something waiting, in turn
        self._size = 0
        self._free = destination.concurrency

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Claim]:
        return iter([claim for key in self._queue for claim in key.waiting])

    def __contains__(self, claim: Claim) -> bool:
        return claim.limit_key is not None and claim in claim.limit_key.waiting

    def key_of(self, attempt: Attempt) -> LimitKey:
        """By tenant where the user's function fails."""
        name_of = self._destination.limit_key
        assert name_of is not None
        try:
            name = name_of(attempt)
        except Exception:  # of the user's function: the send will say so too
            name = f"tenant {attempt.tenant}"
        if name is None:
            return self._unnamed
        return self.named(bounded(str(name)) or "?")

    def named(self, name: str) -> LimitKey:
        key = self.keys.get(name)
        if key is None:
            self._forget_plain()
            key = self.keys[name] = LimitKey(name, self._destination, slots=self._destination.slots_per_key)
        return key

    def _forget_plain(self) -> None:
        if len(self.keys) >= PLAIN_MAX:
            for name in [name for name, key in self.keys.items() if key.is_plain][: PLAIN_MAX // 10]:
                del self.keys[name]

    def append(self, claim: Claim) -> None:
        key = claim.limit_key = self.key_of(claim.attempt)
        key.waiting.append(claim)
        self._size += 1
        if not key.is_queued:
            key.is_queued = True
            self._queue.append(key)

    def extend(self, claims: Iterable[Claim]) -> None:
        for claim in claims:
            self.append(claim)

    def clear(self) -> None:
        for key in self._queue:
            key.waiting.clear()
            key.is_queued = False
        self._queue.clear()
        self._size = 0

    def remove(self, claim: Claim) -> None:
        assert claim.limit_key is not None
        claim.limit_key.waiting.remove(claim)
        self._size -= 1

    def peek(self, now: float) -> Claim | None:
        for _ in range(len(self._queue)):
            key = self._queue[0]
            if not key.waiting:
                key.is_queued = False
                self._queue.popleft()
            elif key.may_begin(now, free=self._free):
                return key.waiting[0]
            else:
                self._queue.rotate(-1)
        return None

    def begin(self, claim: Claim, now: float) -> None:
        """Takes what `peek` has just returned; it holds a slot of its key until `end`."""
        key = self._queue[0]
        assert key.waiting[0] is claim
        key.waiting.popleft()
        self._queue.rotate(-1)
        self._size -= 1
        self._free -= 1
        claim.begun = True
        key.running += 1
        key.moved_at = now

    def end(
        self, claim: Claim, now: float, *, latency_seconds: float | None = None, answered: bool | None = None
    ) -> None:
        key = claim.limit_key
        if key is None or not claim.begun:
            return
        claim.begun = False
        key.running -= 1
        self._free += 1
        key.moved_at = now
        key.saw(answered=answered)
        if latency_seconds is not None:
            before = key.latency_seconds
            key.latency_seconds = latency_seconds if before is None else 0.9 * before + 0.1 * latency_seconds

    def may_begin(self, now: float) -> int:
        return sum(key.may_begin(now, free=self._free) for key in self._queue)

    def soon(self, now: float, *, horizon_seconds: float) -> int:
        """How many begin within the horizon: the others are no reason to claim less."""
        return sum(
            min(
                len(key.waiting),
                key.may_begin(now, free=self._free) + key.ahead(now, horizon_seconds=horizon_seconds),
            )
            for key in self._queue
        )

    def take_without_turn(self) -> list[tuple[LimitKey, list[Claim]]]:
        """Claims that need a turn of a rate and have none; the caller books turns for them."""
        found = [(key, [c for c in key.waiting if c.turn_at is None]) for key in self._queue]
        for _, claims in found:
            for claim in claims:
                claim.turn_at = math.inf
        return [(key, claims) for key, claims in found if claims]

    def has_blocked(self, now: float) -> bool:
        return any(key.waiting and key.blocked_seconds(now) is not None for key in self._queue)

    def take_blocked(self, now: float, *, probe_seconds: float) -> list[tuple[Claim, PutOff]]:
        """All claims of a key that rests; all but the probe of a key that was down."""
        put_off: list[tuple[Claim, PutOff]] = []
        for key in self._queue:
            if key.blocked_seconds(now) is not None:
                if not key.writing:  # else the database does not know yet for how long
                    put_off += self._take(key, 0, [None] * len(key.waiting))
            elif key.needs_probe(now) and len(key.waiting) + key.running > 1:
                keep = max(1 - key.running, 0)
                put_off += self._take(key, keep, [probe_seconds] * (len(key.waiting) - keep))
        return put_off

    def take_late(self, now: float, *, horizon_seconds: float, is_full: bool) -> list[tuple[Claim, PutOff]]:
        """Claims that will not get a slot of their key soon, each with the date at which they might.

        is_full: the queue has no room for others, so all that does not begin within the horizon is late.
        """
        put_off: list[tuple[Claim, PutOff]] = []
        for key in self._queue:
            if not key.waiting or key.may_begin(now, free=self._free) or not key.has_turn(key.waiting[0], now):
                continue  # without a turn it waits for its rate, not for a slot
            ahead = key.ahead(now, horizon_seconds=horizon_seconds)
            if now - key.waiting[0].claimed_at > WAIT_SECONDS:
                keep = 0
            elif is_full or key.put_off_until > now:
                keep = ahead
            else:
                continue
            count = len(key.waiting) - keep
            if count > 0:
                dates = self.dates(key, count, now, apart=key.pace(now), most=LATE_SECONDS_MAX)
                put_off += self._take(key, keep, dates)
        return put_off

    def take(self, key: LimitKey, claims: list[Claim], seconds: list[float]) -> list[tuple[Claim, PutOff]]:
        taken = set(claims)
        key.waiting = deque(claim for claim in key.waiting if claim not in taken)
        self._size -= len(claims)
        return [(claim, PutOff(s, key.name)) for claim, s in zip(claims, seconds, strict=True)]

    def dates(self, key: LimitKey, count: int, now: float, *, apart: float, most: float) -> list[float]:
        """One after the other, behind what was put off before."""
        first = max(key.put_off_until, now + max(apart, 0.5))
        last = min(first + (count - 1) * apart, now + most)
        key.put_off_until = last
        return [min(first + place * apart, last) - now for place in range(count)]

    def _take(self, key: LimitKey, keep: int, seconds: Sequence[float | None]) -> list[tuple[Claim, PutOff]]:
        taken = [key.waiting.pop() for _ in range(len(key.waiting) - keep)]
        self._size -= len(taken)
        return [(claim, PutOff(s, key.name)) for claim, s in zip(reversed(taken), seconds, strict=True)]
