"""Whatever holds a destination back in one relay: a person's pause, bugs, a Retry-After, its breaker (G-10, G-25).

This relay stops at once, tells the database, and with it everybody else; what others told is heard with the heartbeat.
What waits in hand is handed back unspent. Claims are let out by the database alone: a relay that has not heard yet gets
none. SQL: `destination.sql`, `breaker.sql`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Final

from redrive.answers import Advance, Delivered
from redrive.events import Events
from redrive.policy import Breaker
from redrive.ports import Clock, DestinationState, Opened, Outcome, Store
from redrive.relay import breaker, bugs
from redrive.relay.hand import Hand
from redrive.relay.leases import Leases
from redrive.relay.limit_keys import LimitKeys
from redrive.relay.limits import RelayLimits
from redrive.relay.patience import Patience
from redrive.relay.tasks import Tasks

RETRY_AFTER: Final = "retry_after"


class Holding:
    """actor: under which name this relay pauses. on_change: a destination may be worked for again."""

    def __init__(
        self,
        store: Store,
        hands: Mapping[str, Hand],
        leases: Leases,
        *,
        actor: str,
        clock: Clock,
        events: Events,
        tasks: Tasks,
        on_change: Callable[[Hand], None],
        limits: RelayLimits,
    ) -> None:
        self._store = store
        self._hands = hands
        self._leases = leases
        self._actor = actor
        self._clock = clock
        self._events = events
        self._tasks = tasks
        self._on_change = on_change
        self._patience = Patience(clock, events)
        self.keys = LimitKeys(
            store,
            hands,
            leases,
            actor=actor,
            limits=limits,
            clock=clock,
            events=events,
            tasks=tasks,
            on_change=on_change,
            on_bugs=self._stop_for_bugs,
        )

    def saw(self, hand: Hand, outcome: Outcome) -> None:
        """What an outcome means for the other messages of its limit key, or of its destination."""
        key = self.keys.key_of(hand, outcome.attempt)
        if key is not None:
            self.keys.saw(hand, key, outcome)
            return
        answer = outcome.settlement.answer
        if isinstance(answer, Delivered | Advance):
            hand.bugs.saw_success()
        elif getattr(answer, "bug", False) and hand.bugs.saw_bug(outcome.attempt.id, getattr(answer, "code", "")):
            self._stop_for_bugs(hand)
        elif outcome.settlement.pause_seconds > 0 and self._must_rest(hand, outcome.settlement.pause_seconds):
            _ = self._tasks.start(self._rest(hand, outcome.settlement.pause_seconds))
        if hand.count is not None and not outcome.attempt.probe and not hand.is_stale(outcome.attempt):
            self._count(hand, hand.count, outcome)

    # bugs and Retry-After: pauses

    def _stop_for_bugs(self, hand: Hand) -> None:
        self._stop(hand, until=None)
        _ = self._tasks.start(self._pause_for_bugs(hand))

    async def _pause_for_bugs(self, hand: Hand) -> None:
        name = hand.destination.name
        with self._events.step("pause", destination=name):
            await self._patience.until_reached(lambda: self._store.pause(name, actor=self._actor, reason=bugs.REASON))
        self._events.emit("destination.paused", destination=name, reason=bugs.REASON)
        hand.bugs.paused()
        await self._stopped(hand)

    def _must_rest(self, hand: Hand, seconds: float) -> bool:
        """Unless it rests for as long already; then it stops at once."""
        until = self._clock.monotonic() + seconds
        if hand.paused and (hand.paused_until is None or hand.paused_until >= until):
            return False
        self._stop(hand, until=until)
        return True

    async def _rest(self, hand: Hand, seconds: float) -> None:
        name = hand.destination.name
        with self._events.step("pause_until", destination=name):
            left = await self._patience.until_reached(
                lambda: self._store.pause_until(name, actor=self._actor, seconds=seconds)
            )
        hand.paused_until = None if left is None else self._clock.monotonic() + left
        reason = None if left is None else RETRY_AFTER  # a person was quicker
        self._events.emit("destination.paused", destination=name, reason=reason, seconds=left)
        await self._stopped(hand)

    def _stop(self, hand: Hand, *, until: float | None) -> None:
        """At once: no slot takes another one. pausing: the database does not know yet."""
        hand.paused = True
        hand.paused_until = until
        hand.pausing += 1

    async def _stopped(self, hand: Hand) -> None:
        hand.pausing -= 1
        await self._leases.hand_back(hand.take_waiting())

    def lift_rests(self) -> None:
        """A rest that is over need not wait for the next heartbeat."""
        self.keys.tick()
        now = self._clock.monotonic()
        for hand in self._hands.values():
            if hand.paused_until is not None and hand.paused_until <= now and not hand.pausing:
                self._resume(hand)

    def _resume(self, hand: Hand) -> None:
        hand.paused, hand.paused_until = False, None
        self._events.emit("destination.resumed", destination=hand.destination.name)
        self._on_change(hand)

    # the breaker

    def _count(self, hand: Hand, count: breaker.Count, outcome: Outcome) -> None:
        answered = breaker.answered(outcome.settlement.answer, _breaker_of(hand))
        if answered is not None and count.saw(answered=answered) and not hand.opening:
            hand.opening = True
            _ = self._tasks.start(self._open(hand, outcome))

    async def report(self, hand: Hand, outcome: Outcome) -> None:
        """How the probe ended; before it is settled, because until then no other one is let out."""
        seconds = outcome.settlement.pause_seconds
        if seconds > 0 and self._must_rest(hand, seconds):
            await self._rest(hand, seconds)  # it was answered: a ramp follows this too
            return
        answered = breaker.answered(outcome.settlement.answer, _breaker_of(hand))
        if answered:
            await self._close(hand, outcome)
        elif answered is not None:
            await self._open(hand, outcome)

    async def _open(self, hand: Hand, outcome: Outcome) -> None:
        name, limits, code = hand.destination.name, _breaker_of(hand), outcome.settlement.error_class or ""
        with self._events.step("open_breaker", destination=name):
            opened: Opened = await self._patience.until_reached(
                lambda: self._store.open_breaker(
                    name,
                    claimed_at=outcome.attempt.claimed_at,
                    code=code,
                    cool_off_seconds=limits.cool_off_seconds,
                    cool_off_max_seconds=limits.cool_off_max_seconds,
                )
            )
        if opened.opened:
            self._events.emit("breaker.opened", destination=name, code=code, seconds=opened.open_seconds)
        hand.opening = False
        if hand.count is not None:
            hand.count.start_again()
        await self._opened(hand, opened.opened_at)

    async def _close(self, hand: Hand, outcome: Outcome) -> None:
        name = hand.destination.name
        with self._events.step("close_breaker", destination=name):
            closed = await self._patience.until_reached(
                lambda: self._store.close_breaker(name, claimed_at=outcome.attempt.claimed_at)
            )
        if closed:
            self._events.emit("breaker.recovered", destination=name)

    async def _opened(self, hand: Hand, at: datetime | None) -> None:
        """What was claimed before is not sent any more; what is claimed later was let out on purpose."""
        if at is not None and (hand.opened_at is None or hand.opened_at < at):
            hand.opened_at = at
        await self._leases.hand_back(hand.take_stale())
        self._on_change(hand)

    # what others say

    async def heard(self, states: Iterable[DestinationState]) -> None:
        for state in states:
            hand = self._hands.get(state.name)
            if hand is None:
                continue
            if not hand.pausing:
                await self._heard_of_pause(hand, state)
            if state.breaker_opened_at is not None and state.breaker_opened_at != hand.opened_at:
                await self._opened(hand, state.breaker_opened_at)

    async def _heard_of_pause(self, hand: Hand, state: DestinationState) -> None:
        left = state.pause_seconds
        if not state.paused:
            if hand.paused:
                self._resume(hand)
            return
        is_news = not hand.paused
        hand.paused, hand.paused_until = True, None if left is None else self._clock.monotonic() + left
        if is_news:
            self._events.emit("destination.paused", destination=state.name, reason=state.pause_reason, seconds=left)
            await self._leases.hand_back(hand.take_waiting())


def _breaker_of(hand: Hand) -> Breaker:
    """Also where it declares none: an operator may have let out a probe after a Retry-After."""
    return hand.destination.breaker or Breaker()
