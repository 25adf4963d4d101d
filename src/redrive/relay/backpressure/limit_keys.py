"""What stops one limit key in one relay, and nothing else of its destination (G-31): `gate.py` for a key.

The relay stops that key at once and writes it to the database; other relays read it with their heartbeat. What waits
for the key is put off in one call: handed back unspent, with the date at which it may go. A key that was down gets one
probe, for which the database is asked, and then a ramp. SQL: `limit_keys.sql`.
"""

from typing import Final

from redrive.answers import RETURN_INVALID, Advance, Delivered
from redrive.message import Attempt
from redrive.ports import Booked, LimitKeyState, Opened, Outcome, PutOff
from redrive.relay.backpressure import breaker, bug_breaker
from redrive.relay.backpressure.limit_key_queue import TURN_SECONDS_MAX, LimitKey
from redrive.relay.claiming.claim import Claim
from redrive.relay.claiming.leases import Leases
from redrive.relay.context import RelayContext
from redrive.relay.dispatching.destination_queue import DestinationQueue
from redrive.relay.dispatching.queues import DestinationQueues
from redrive.relay.dispatching.slots import Slots

KEYS_MAX: Final = 10_000  # of so many that are not plain a relay is told
BOOK_SECONDS: Final = 0.5  # turns of a rate for which a claim is kept
PROBE_SECONDS_MIN: Final = 1.0
HEARD_SECONDS: Final = 0.25  # what is put off is judged by what the database said within this time


class LimitKeys:
    def __init__(self, context: RelayContext, queues: DestinationQueues, leases: Leases, slots: Slots) -> None:
        self._context = context
        self._store = context.store
        self._clock = context.clock
        self._events = context.events
        self._limits = context.limits
        self._queues = {name: queue for name, queue in queues.items() if queue.keyed is not None}
        self._leases = leases
        self._slots = slots
        self._heard_at = float("-inf")

    # what waits

    async def sift(self, queue: DestinationQueue) -> None:
        """Put off what must not be sent yet, and what would wait too long; book turns for what needs one."""
        keyed = queue.keyed
        if keyed is None or not keyed:
            return
        if keyed.has_blocked(self._clock.monotonic()) and self._clock.monotonic() > self._heard_at + HEARD_SECONDS:
            await self._refresh_states()  # one may have been resumed: what waits for it must not be claimed in a circle
        now = self._clock.monotonic()
        put_off = keyed.take_blocked(now, probe_seconds=_probe_seconds(queue))
        put_off += keyed.take_late(
            now,
            horizon_seconds=self._limits.horizon_seconds,
            is_full=2 * len(keyed) > self._limits.claim_max,
        )
        put_off += await self._book(queue)
        queue.capacity.skims = bool(put_off)
        await self._leases.put_off(put_off)

    async def _book(self, queue: DestinationQueue) -> list[tuple[Claim, PutOff]]:
        """The turns of what waits for a destination with a rate; what gets none is put off."""
        keyed, rate = queue.keyed, queue.destination.rate
        put_off: list[tuple[Claim, PutOff]] = []
        if keyed is None or rate is None:
            return put_off
        for key, claims in keyed.take_without_turn():
            booked = await self._booked(queue, key, len(claims), rate)
            now = self._clock.monotonic()
            for place, claim in enumerate(claims[: booked.turns]):
                claim.turn_at = now + booked.seconds + place / rate
            waiting = set(key.waiting)
            late = [claim for claim in claims[booked.turns :] if claim in waiting]
            if late:
                key.put_off_until = max(key.put_off_until, now + booked.seconds + booked.turns / rate)
                dates = keyed.dates(key, len(late), now, apart=1 / rate, most=TURN_SECONDS_MAX)
                put_off += keyed.take(key, late, dates)
        return put_off

    async def _booked(self, queue: DestinationQueue, key: LimitKey, count: int, rate: float) -> Booked:
        name = queue.destination.name
        return await self._context.step(
            "book_key",
            lambda: self._store.book_key(name, key.name, count=count, rate=rate, most_seconds=BOOK_SECONDS),
            destination=name,
            count=count,
        )

    def tick(self) -> None:
        """Time has passed: a turn has come, a ramp has grown, something waits for too long."""
        now = self._clock.monotonic()
        for queue in self._queues.values():
            if queue.waiting and not queue.sifting:
                queue.sifting = True
                _ = self._context.tasks.start(self._sift_and_go_on(queue))
            elif queue.capacity.skims and not queue.waiting:
                queue.capacity.skims = False
            if queue.has_free_slot(now):
                self._slots.refill(queue)

    async def _sift_and_go_on(self, queue: DestinationQueue) -> None:
        try:
            await self.sift(queue)
        finally:
            queue.sifting = False
        self._slots.refill(queue)

    async def may_go(self, queue: DestinationQueue, claim: Claim) -> bool:
        """False where its key is down and another message is its probe; then it was put off."""
        key = claim.limit_key
        if key is None or not key.needs_probe(self._clock.monotonic()):
            return True
        name, id = queue.destination.name, claim.attempt.id
        answer = await self._context.step(
            "probe_key", lambda: self._store.probe_key(name, key.name, id), destination=name, id=id
        )
        if answer == "wait":
            await self._leases.put_off([(claim, PutOff(_probe_seconds(queue), key.name))])
            return False
        claim.probe = answer == "go"
        key.breaker = "half_open" if claim.probe else "closed"
        return True

    # what an outcome means

    def key_of(self, queue: DestinationQueue, attempt: Attempt) -> LimitKey | None:
        """None where what happens to it concerns the whole destination."""
        if queue.keyed is None:
            return None
        claim = self._leases.claims.get(attempt.id)
        key = claim.limit_key if claim is not None and claim.limit_key else queue.keyed.key_of(attempt)
        return key if key.is_named else None

    def note_outcome(self, queue: DestinationQueue, key: LimitKey, outcome: Outcome) -> bool:
        """What an outcome means for the other messages of its key. True: bugs stop the whole destination."""
        answer = outcome.settlement.answer
        seconds = outcome.settlement.pause_seconds
        if isinstance(answer, Delivered | Advance):
            key.bugs.saw_success()
            queue.bugs_of_keys.saw_success()
        elif getattr(answer, "bug", False):
            return self._note_bug(queue, key, outcome)
        elif seconds > 0 and self._must_rest(key, seconds):
            _ = self._context.tasks.start(self._rest(queue, key, seconds))
        is_stale = key.opened_at is not None and outcome.attempt.claimed_at <= key.opened_at
        claim = self._leases.claims.get(outcome.attempt.id)
        if key.count is not None and not is_stale and not (claim is not None and claim.probe):
            answered = breaker.answered(answer, queue.breaker_rules)
            if answered is not None and key.count.saw(answered=answered) and key.breaker != "open":
                key.breaker, key.breaker_until = "open", self._clock.monotonic() + queue.breaker_rules.cool_off_seconds
                key.writing += 1
                _ = self._context.tasks.start(self._open(queue, key, outcome))
        return False

    def _note_bug(self, queue: DestinationQueue, key: LimitKey, outcome: Outcome) -> bool:
        attempt, code = outcome.attempt, getattr(outcome.settlement.answer, "code", "")
        if code == RETURN_INVALID:  # of the handler, whatever the key
            return queue.bugs.saw_bug(attempt.id, code)
        if queue.bugs_of_keys.saw_bug(attempt.id, key.name, attempt.tenant):
            queue.bugs_of_keys.saw_success()
            return True
        if key.bugs.saw_bug(attempt.id, code):
            key.paused, key.paused_until = True, None
            key.writing += 1
            _ = self._context.tasks.start(self._pause_for_bugs(queue, key))
        return False

    async def report(self, queue: DestinationQueue, claim: Claim, outcome: Outcome) -> None:
        """How the probe of a key ended; before it is settled, because until then no other one is let out."""
        key, seconds = claim.limit_key, outcome.settlement.pause_seconds
        if key is None:
            return
        if seconds > 0 and self._must_rest(key, seconds):
            await self._rest(queue, key, seconds)  # it was answered: a ramp follows this too
            return
        answered = breaker.answered(outcome.settlement.answer, queue.breaker_rules)
        if answered:
            await self._close(queue, key, outcome)
        elif answered is not None:
            key.writing += 1
            await self._open(queue, key, outcome)

    async def _pause_for_bugs(self, queue: DestinationQueue, key: LimitKey) -> None:
        name = queue.destination.name
        actor, reason = self._context.actor, bug_breaker.REASON
        await self._context.step(
            "pause", lambda: self._store.pause_key(name, key.name, actor=actor, reason=reason), destination=name
        )
        self._events.emit("limit_key.paused", destination=name, key=key.name, reason=reason)
        key.bugs.paused()
        key.writing -= 1
        await self.sift(queue)

    def _must_rest(self, key: LimitKey, seconds: float) -> bool:
        """Unless it rests for as long already; then it stops at once."""
        until = self._clock.monotonic() + seconds
        if key.paused and (key.paused_until is None or key.paused_until >= until):
            return False
        key.paused, key.paused_until, key.ramp_from = True, until, until
        key.writing += 1
        return True

    async def _rest(self, queue: DestinationQueue, key: LimitKey, seconds: float) -> None:
        name, actor = queue.destination.name, self._context.actor
        left = await self._context.step(
            "pause_until", lambda: self._store.rest_key(name, key.name, actor=actor, seconds=seconds), destination=name
        )
        key.paused_until = None if left is None else self._clock.monotonic() + left
        key.ramp_from = key.paused_until
        if key.breaker == "half_open":
            key.breaker = "closed"
        reason = None if left is None else "retry_after"
        self._events.emit("limit_key.paused", destination=name, key=key.name, reason=reason, seconds=left)
        key.writing -= 1
        await self.sift(queue)

    async def _open(self, queue: DestinationQueue, key: LimitKey, outcome: Outcome) -> None:
        name, evidence = queue.destination.name, breaker.evidence(outcome, queue.breaker_rules)
        opened: Opened = await self._context.step(
            "open_breaker", lambda: self._store.open_key(name, key.name, **evidence), destination=name
        )
        if opened.opened:
            values = {"code": evidence["code"], "seconds": opened.open_seconds}
            self._events.emit("limit_key.opened", destination=name, key=key.name, **values)
        key.breaker, key.breaker_until = "open", self._clock.monotonic() + opened.open_seconds
        key.opened_at, key.ramp_from = opened.opened_at, None
        if key.count is not None:
            key.count.start_again()
        key.writing -= 1
        await self.sift(queue)

    async def _close(self, queue: DestinationQueue, key: LimitKey, outcome: Outcome) -> None:
        name, at = queue.destination.name, outcome.attempt.claimed_at
        closed = await self._context.step(
            "close_breaker", lambda: self._store.close_key(name, key.name, claimed_at=at), destination=name
        )
        if closed:
            key.breaker, key.breaker_until, key.ramp_from = "closed", None, self._clock.monotonic()
            self._events.emit("limit_key.recovered", destination=name, key=key.name)

    # what others say

    async def refresh(self) -> None:
        """Which keys of our destinations are not plain, by the database's word."""
        if self._queues:
            await self._refresh_states()
        for queue in self._queues.values():
            await self.sift(queue)
            self._slots.refill(queue)

    async def _refresh_states(self) -> None:
        states = await self._context.until_reachable(
            lambda: self._store.limit_keys(sorted(self._queues), limit=KEYS_MAX)
        )
        self._heard_at = self._clock.monotonic()
        told: dict[str, dict[str, LimitKeyState]] = {}
        for state in states:
            told.setdefault(state.destination, {})[state.key] = state
        for name, queue in self._queues.items():
            here = told.get(name, {})
            assert queue.keyed is not None
            for key in [*queue.keyed.keys.values(), *(queue.keyed.named(one) for one in here)]:
                if not key.writing:
                    self._heard(queue, key, here.get(key.name))

    def _heard(self, queue: DestinationQueue, key: LimitKey, state: LimitKeyState | None) -> None:
        now, name = self._clock.monotonic(), queue.destination.name
        was_paused = key.paused
        state = state or LimitKeyState(destination=name, key=key.name, paused=False)
        key.paused = state.paused
        key.paused_until = None if state.pause_seconds is None else now + state.pause_seconds
        if was_paused and not key.paused:
            self._events.emit("limit_key.resumed", destination=name, key=key.name)
        elif key.paused and not was_paused:
            values = {"reason": state.pause_reason, "seconds": state.pause_seconds}
            self._events.emit("limit_key.paused", destination=name, key=key.name, **values)
        key.opened_at = state.breaker_opened_at or key.opened_at
        key.breaker = state.breaker if state.breaker in ("open", "half_open") else "closed"
        key.breaker_until = None if state.breaker_seconds is None else now + state.breaker_seconds
        key.ramp_from = None if state.ramp_seconds is None else now - state.ramp_seconds


def _probe_seconds(queue: DestinationQueue) -> float:
    """When to look again at what waits behind a probe."""
    return max(queue.breaker_rules.cool_off_seconds, PROBE_SECONDS_MIN)
