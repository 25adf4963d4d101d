"""The same random lives on PostgreSQL and on the model: one rule a verb, out of a small world.

Three workers, two destinations, two ordering keys, some messages at a time. A rule that needs a claim or a parked
message makes one where there is none, because a blind walk hardly ever gets far into a message's life; `late_outcomes`
and `poke` do what does not make sense. What is compared after each is in `comparison`. Run by `test_side_by_side`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from redrive.message import Attempt, MessageId, NewMessage, ParkReason, Priority, WorkerId
from redrive.policy import Settlement
from redrive.ports import ClaimRequest, HandOver, Outcome, RecordFailed, RelayInfo, Settled, Store
from tests.conformance.steps import ACT
from tests.model.comparison import Comparison, newest
from tests.model.outcomes import OUTCOMES

OPEN_MAX = 8
EVERYTHING = 1000
LEASE_SECONDS = 30.0
WORKERS = [WorkerId(UUID(int=number)) for number in (1, 2, 3)]
DESTINATIONS = ["mail", "bank"]
KEYS = ["red", "blue"]
LEVELS = [Priority.HIGH.level, Priority.NORMAL.level]
EVERY_ROOM = [ClaimRequest(destination, level, 20) for destination in DESTINATIONS for level in LEVELS]
FITTING = {
    ParkReason.DEAD: ["requeue", "requeue at another stage", "requeue out of order", "confirm", "discard"],
    ParkReason.HELD: ["confirm", "deny", "discard"],
    ParkReason.UNRECORDED: ["repair", "repair", "discard"],
}

FITTING_SOMETHING = ("requeue", "requeue out of order", "confirm", "deny", "repair", "discard")
PARKING = ("dead", "dead, but its key goes on", "dead in doubt", "held", "unrecorded")
HOW: Mapping[str, Mapping[str, Any]] = {
    "": {},
    "at another stage": {"stage": "second"},
    "out of order": {"out_of_order": True},
}

workers = st.sampled_from(WORKERS)
somebody = st.one_of(st.none(), workers)  # None: whoever holds the claim
destinations = st.sampled_from(DESTINATIONS)
some_destinations = st.lists(destinations, unique=True)
some_rooms = st.lists(
    st.builds(ClaimRequest, destinations, st.sampled_from(LEVELS), st.integers(0, 3), st.none()),
    unique_by=lambda room: (room.destination, room.level),
    min_size=1,
)
claim_requests = st.one_of(st.just(EVERY_ROOM), st.just(EVERY_ROOM), some_rooms)
# Counted from the newest: what happened lately is what a relay is busy with.
position = st.integers(0, 5)
any_position = st.integers(0, 40)
outcome_names = st.sampled_from(list(OUTCOMES))
asking = st.sampled_from([None, None, 0, 1])
some_key = st.sampled_from([None, *KEYS, *KEYS])
pokes = st.sampled_from(["act", "cancel", "reap", "fence", "upkeep"])


class SideBySide(Comparison):
    @initialize(count=st.integers(0, 3), destination=destinations, key=some_key)
    def begin(self, count: int, destination: str, key: str | None) -> None:
        for payload in range(count):
            self.enqueue_on_both(NewMessage(destination, payload, order_by=key))

    @precondition(lambda self: len(self.open_ids()) < OPEN_MAX)
    @rule(
        destination=destinations,
        priority=st.sampled_from([Priority.HIGH, Priority.NORMAL]),
        payload=st.sampled_from([1, 2]),
        key=st.sampled_from([None, None, "a", "b"]),
        order_by=some_key,
        due_in=st.sampled_from([None, None, 5]),
        expires_in=st.sampled_from([None, 20, 100]),
    )
    def enqueue(self, due_in: float | None, expires_in: float | None, **values: Any) -> None:
        self.enqueue_on_both(NewMessage(**values, due_at=self._in(due_in), expires_at=self._in(expires_in)))

    # relays

    @rule(worker=workers, wanted=claim_requests, from_marks=st.booleans())
    def claim(self, worker: WorkerId, wanted: Sequence[ClaimRequest], *, from_marks: bool = False) -> None:
        for pending in self.waiting(suspect=False)[:1]:
            self.wait_until(pending.due_at)
        self.claim_on_both(worker, wanted, lease_seconds=LEASE_SECONDS, from_marks=from_marks)

    @rule(worker=workers, wanted=st.one_of(st.just(DESTINATIONS), some_destinations))
    def claim_suspect(self, worker: WorkerId, wanted: Sequence[str]) -> None:
        for pending in self.waiting(suspect=True)[:1]:
            self.wait_until(pending.due_at)
        busy = {self.holders[attempt.fence] for attempt in self.live()}
        who = next((idle for idle in WORKERS if idle not in busy), worker)
        self._at_now(lambda s, now: s.suspect_destinations(wanted, now=now))
        claimed = self._at_now(lambda s, now: s.claim_suspect(who, wanted, lease_seconds=60, now=now))
        self.took(who, claimed.attempts)

    @rule(said=st.lists(st.tuples(position, outcome_names), min_size=1, max_size=3), asking=asking)
    def settle(self, said: Sequence[tuple[int, str]], asking: int | None) -> None:
        outcomes = [OUTCOMES[name](self._held(place)) for place, name in said]
        worker = self.holders[outcomes[0].attempt.fence]
        self._settle(worker, outcomes, asking)

    @rule(said=st.lists(position, min_size=1, max_size=3))
    def deliver(self, said: Sequence[int]) -> None:
        """And have the next ones, again and again: what a relay does most."""
        self.settle([(place, "delivered") for place in said], asking=None)

    @rule(place=position, said=outcome_names, fails=st.booleans())
    def settle_one(self, place: int, said: str, fails: bool) -> None:
        self._settle_one(self._held(place), said, fails=fails)

    @rule(place=position, others=st.lists(any_position, max_size=2), worker=somebody, suspect=st.booleans())
    def hand_back(self, place: int, others: Sequence[int], worker: WorkerId | None, suspect: bool = False) -> None:
        first = self._held(place)
        who = worker or self.holders[first.fence]
        fences = [first.fence, *(newest(self.attempts, other).fence for other in others)]
        self._at_now(lambda s, now: s.hand_back(who, fences, suspect=suspect, now=now))

    @rule(place=position, wait_seconds=st.sampled_from([1, 29, 40]), worker=somebody)
    def renew(self, place: int, wait_seconds: float, worker: WorkerId | None) -> None:
        fence = self._held(place).fence
        self._wait(wait_seconds)
        self._at_now(lambda s, now: s.renew(worker or self.holders[fence], [fence], lease_seconds=45, now=now))

    # what goes wrong

    @rule(place=position)
    def worker_dies(self, place: int) -> None:
        worker = self.holders[self._held(place).fence]
        self._at_now(lambda s, now: s.reap(limit=EVERYTHING, worker=worker, now=now))

    @rule(place=position)
    def crashes_alone(self, place: int) -> None:
        """And is in hand again, alone."""
        self.worker_dies(place)
        self.claim_suspect(WORKERS[0], DESTINATIONS)
        self.worker_dies(0)
        self.claim_suspect(WORKERS[0], DESTINATIONS)

    @rule(place=position, wait_seconds=st.sampled_from([31, 61]))
    def leases_run_out(self, place: int, wait_seconds: float) -> None:
        self._held(place)
        self._wait(wait_seconds)
        self._at_now(lambda s, now: s.reap(limit=EVERYTHING, now=now))

    @rule(wait_seconds=st.sampled_from([1, 21, 91]))
    def time_runs_out(self, wait_seconds: float) -> None:
        self._wait(wait_seconds)
        self._at_now(lambda s, now: s.expire(limit=EVERYTHING, now=now))

    @precondition(lambda self: self.attempts)
    @rule(worker=workers, said=st.lists(st.tuples(any_position, outcome_names), min_size=1, max_size=4))
    def late_outcomes(self, worker: WorkerId, said: Sequence[tuple[int, str]]) -> None:
        """Of any claims that ever were, by anybody; some may be held."""
        outcomes = [OUTCOMES[name](newest(self.attempts, place)) for place, name in said]
        self._settle(worker, outcomes, asking=None)

    # people

    @precondition(lambda self: self.open_ids())
    @rule(place=position, actor=st.sampled_from([None, "ada"]))
    def cancel(self, place: int, actor: str | None) -> None:
        id = newest(self.open_ids(), place)
        self._at_now(lambda s, now: s.cancel(id, actor=actor, reason=actor and "wrong", now=now))

    @rule(place=position)
    def cancel_in_flight(self, place: int) -> None:
        id = self._held(place).id
        self._at_now(lambda s, now: s.cancel(id, now=now))

    @rule(place=position, choice=st.integers(0, 3), how=st.sampled_from(PARKING))
    def act(self, place: int, choice: int, how: str) -> None:
        if not self.parked():
            self.settle([(0, how)], asking=None)
        parked = newest(self.parked(), place)
        fitting = FITTING[parked.reason]
        self._act(parked.id, fitting[choice % len(fitting)])

    @rule(place=position)
    def requeue_where_the_key_went_on(self, place: int) -> None:
        self.settle([(place, "dead, but its key goes on")], asking=None)
        self.claim(WORKERS[0], EVERY_ROOM)
        for parked in self.parked()[-1:]:
            self._act(parked.id, "requeue out of order")

    @rule(key=st.sampled_from([*KEYS, "unknown"]), sequence=st.sampled_from([None, None, 1, 2]))
    def skip(self, key: str, sequence: int | None) -> None:
        self._at_now(lambda s, now: s.skip("default", key, **ACT, sequence=sequence, now=now))

    @rule(destination=destinations, worker=workers)
    def pause(self, destination: str, worker: WorkerId) -> None:
        """Whatever waits there is not claimed now; it is resumed when a claim is needed."""
        self._at_now(lambda s, now: s.pause(destination, **ACT, now=now))
        self.claim(worker, EVERY_ROOM)
        self.claim_suspect(worker, DESTINATIONS)

    # everything else, whether it makes sense or not

    @rule(what=pokes, worker=workers, destination=destinations, place=any_position, flag=st.booleans())
    def poke(self, what: str, worker: WorkerId, destination: str, place: int, flag: bool) -> None:
        match what:
            case "act" if self.ids:
                self._act(newest(self.ids, place), FITTING_SOMETHING[place % len(FITTING_SOMETHING)])
            case "cancel" if self.ids:
                self._at_now(lambda s, now: s.cancel(newest(self.ids, place), now=now))
            case "reap":
                self._at_now(lambda s, now: s.reap(limit=EVERYTHING, now=now))
            case "fence" if self.attempts:
                self._poke_fence(worker, newest(self.attempts, place), settles=flag)
            case "upkeep":
                self._upkeep(worker, destination, records=flag)

    def _poke_fence(self, worker: WorkerId, attempt: Attempt, *, settles: bool) -> None:
        """A claim that ever was, in the hands of anybody."""
        self.both(lambda store: store.is_leased(attempt.fence))
        if settles:
            self._settle_one(attempt, "delivered", fails=False)
        else:
            self._at_now(lambda s, now: s.renew(worker, [attempt.fence], lease_seconds=LEASE_SECONDS, now=now))
            self._at_now(lambda s, now: s.hand_back(worker, [attempt.fence], now=now))

    def _upkeep(self, worker: WorkerId, destination: str, *, records: bool) -> None:
        relay = RelayInfo(
            worker=worker,
            name="relay",
            host="here",
            pid=1,
            version="1",
            destinations=[destination],
            records=[destination] if records else [],
        )
        self._at_now(lambda s, now: s.register(relay, now=now))
        self._at_now(lambda s, now: s.heartbeat(worker, now=now))
        self._at_now(lambda s, now: s.begin_duty("reap", worker, every_seconds=10, now=now))
        if records:
            self._at_now(lambda s, now: s.end_duty("reap", worker, result="0", now=now))

    # what the rules are made of

    def _held(self, place: int) -> Attempt:
        """A claim that is held; where there is none, one is made of what waits, or of a new message."""
        if not self.live():
            self._resume()
            self.claim(WORKERS[0], EVERY_ROOM)
        if not self.live():
            self.claim_suspect(WORKERS[1], DESTINATIONS)
        if not self.live():
            self.enqueue_on_both(NewMessage(DESTINATIONS[0], 3, expires_at=self._in(90)))
            self.claim(WORKERS[2], EVERY_ROOM)
        return newest(self.live(), place)

    def _resume(self) -> None:
        for name in filter(self.model.is_paused, DESTINATIONS):
            self._at_now(lambda s, now, name=name: s.resume(name, **ACT, now=now))

    def _act(self, id: MessageId, verb: str) -> None:
        name, _, how = verb.partition(" ")
        values = {**ACT, **HOW[how]}
        self._at_now(lambda s, now: getattr(s, name)(id, **values, now=now))

    def _settle(self, worker: WorkerId, outcomes: Sequence[Outcome], asking: int | None) -> None:
        """asking: for how many of them the next message of the lane is asked for; None = all."""
        hand_over = HandOver({o.attempt.id for o in outcomes[:asking]}, LEASE_SECONDS)
        settled = self._at_now(lambda s, now: s.settle(worker, outcomes, hand_over=hand_over, now=now))
        self.took(worker, settled.handed_over)

    def _settle_one(self, attempt: Attempt, said: str, *, fails: bool) -> None:
        outcome, worker = OUTCOMES[said](attempt), self.holders[attempt.fence]

        async def record(_conn: Any, _attempt: Attempt, _settlement: Settlement) -> None:
            if fails:
                raise ValueError("refused")

        async def settle_one(store: Store, now: datetime) -> tuple[Settled | str, Sequence[str]]:
            steps: list[str] = []
            try:
                return await store.settle_one(worker, outcome, record, on_step=steps.append, now=now), steps
            except RecordFailed as error:
                return type(error.__cause__).__name__, steps

        self._at_now(settle_one)

    def _at_now(self, call: Callable[..., Any]) -> Any:
        now = self.now()
        return self.both(lambda store: call(store, now))

    def _wait(self, seconds: float) -> None:
        self.wait_until(self.moment() + timedelta(seconds=seconds))

    def _in(self, seconds: float | None) -> datetime | None:
        return None if seconds is None else self.moment() + timedelta(seconds=seconds)
