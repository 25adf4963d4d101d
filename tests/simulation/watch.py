"""The invariants, looked at on every move of every message and at every send, from outside the engine.

It sees what the store was asked and which moves came of it, what went out to the destinations, and both clocks; it asks
the engine nothing. What is wrong is noted once and ends the schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from redrive.answers import Answer, Retryable, Terminal, Unknown
from redrive.message import (
    CancelAnswer,
    Closed,
    Fence,
    HistoryEntry,
    MessageId,
    NewMessage,
    ParkReason,
    WorkerId,
    token,
)
from redrive.policy import SettlementKind
from redrive.ports import Outcome
from tests.model_store.tables import START
from tests.model_store.transitions import Lease, Move, Parked, Pending, Place
from tests.simulation.allowance import Allowance
from tests.simulation.config import NEVER_TWICE, RECORDED
from tests.simulation.loop import Process, SimulationLoop
from tests.simulation.rail import Rail, Sent
from tests.simulation.trace import Trace

ACTS: Final = frozenset({"requeue", "confirm", "deny", "repair", "discard", "skip"})
ENDINGS: Final = frozenset({"settle", "settle_one", "hand_back", "reap"})


@dataclass(frozen=True)
class Call:
    """A verb on its way through the store: what it was asked, and by which process."""

    verb: str
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]
    process: Process

    @property
    def worker(self) -> WorkerId | None:
        return self.options.get("worker") if self.verb == "reap" else self.arguments[0]

    @property
    def outcomes(self) -> Sequence[Outcome]:
        return [self.arguments[1]] if self.verb == "settle_one" else self.arguments[1]

    @property
    def fences(self) -> Sequence[Fence]:
        return self.arguments[1] if self.verb == "hand_back" else [o.attempt.fence for o in self.outcomes]


CALL: Final[ContextVar[Call]] = ContextVar("call")


class Grant(NamedTuple):
    """A lease as it was given: until when by the database, and how far behind the holder's clock was then."""

    until: float
    behind_seconds: float


@dataclass
class Life:
    """What the outside knows of one message. last_attempt: after a cancel, none later than this one may send."""

    id: MessageId
    asked: NewMessage
    sequence: int | None
    last_attempt: int | None = None
    excused: bool = False  # sent upon by a process whose clock had stood still: nobody can keep that from happening


class Watch:
    """places: where a message is, by the store under test; conservation: what it counts."""

    def __init__(
        self,
        loop: SimulationLoop,
        trace: Trace,
        rail: Rail,
        allowance: Allowance,
        *,
        place_of: Callable[[MessageId], Place | None],
        conservation: Callable[[], Sequence[int]],
    ) -> None:
        self.violations: list[str] = []
        self.lives: dict[MessageId, Life] = {}
        self.workers: dict[WorkerId, Process] = {}
        self.survivors: set[Process] = set()  # of those that lived when it became calm
        self.late_sends = 0
        self._loop = loop
        self._trace = trace
        self._rail = rail
        self._place_of = place_of
        self._allowance = allowance
        self._conservation = conservation
        self._keys: dict[tuple[str, str], list[Life]] = {}
        self._grants: dict[Fence, Grant] = {}
        self._held_by: dict[WorkerId, int] = {}
        self._settled: dict[Fence, tuple[WorkerId, type[Answer | None]]] = {}
        self._answers: dict[Fence, Process] = {}

    def violated(self, what: str, *values: Any) -> None:
        self._trace.note(f"VIOLATION: {what}", *values)
        self.violations.append(" ".join([what, *map(self._trace.word, values)]))
        self._loop.stop()

    def _must(self, holds: bool, what: str, *values: Any) -> None:
        if not holds:
            self.violated(what, *values)

    # producers

    def enqueued(self, id: MessageId, asked: NewMessage, sequence: int | None) -> None:
        life = self.lives[id] = Life(id, asked, sequence)
        if asked.order_by is not None:
            of_key = self._keys.setdefault((asked.tenant, asked.order_by), [])
            of_key.append(life)
            self._must(sequence == len(of_key), "the sequence has a gap at", id, sequence)
        self._count()

    # the store

    def answered(self, call: Call, result: Any) -> None:
        """A verb has done its work."""
        self._count()
        match call.verb:
            case "renew":
                for fence in result:
                    self._grant(fence, call.process)
            case "settle" | "settle_one":
                written = result.settled + len(result.refused) + len(result.repeated) + len(result.busy)
                self._must(written == len(call.outcomes), "outcomes were neither written nor refused", call.fences)
                self._look_at_refused(call, result.refused)
            case "cancel" if result in (CancelAnswer.CANCELLED, CancelAnswer.IN_FLIGHT, CancelAnswer.IN_DOUBT):
                self._note_cancel(call.arguments[0])

    def _count(self) -> None:
        enqueued, *places = self._conservation()
        self._must(enqueued == len(self.lives) == sum(places), "messages do not add up:", enqueued, places)

    def _look_at_refused(self, call: Call, refused: Sequence[Fence]) -> None:
        """Whoever says the same again, because the reply was lost, is not late."""
        for outcome in call.outcomes:
            said = (call.worker, type(outcome.settlement.answer))
            again = outcome.attempt.fence in refused and self._settled.get(outcome.attempt.fence) == said
            self._must(not again, "a repeated outcome was taken for a late one:", outcome.attempt.id)

    def _note_cancel(self, id: MessageId) -> None:
        place = self._place_of(id)
        self.lives[id].last_attempt = 0 if place is None or isinstance(place, Closed) else place.attempt

    def moved(self, id: MessageId, before: Place | None, move: Move) -> None:
        """One message changes its place, by the verb that is on its way."""
        call, to = CALL.get(), move.to
        self._trace.note(f"  {call.verb}:", id, _shown(before), "→", _shown(to), who=call.process.name)
        self._must(not isinstance(before, Closed), "left its end:", id)
        if isinstance(before, Pending | Lease | Parked) and isinstance(to, Pending | Lease | Parked):
            claimed = isinstance(to, Lease) and not isinstance(before, Lease)
            self._must(
                to.attempt == before.attempt + claimed, "attempts are not dense:", id, before.attempt, to.attempt
            )
        if isinstance(before, Lease):
            self._ends_claim(call, id, before, to)
        elif isinstance(to, Lease) and isinstance(before, Pending):
            self._begins_claim(call, id, before, to)
        elif call.verb in ACTS:
            self.lives[id].last_attempt = None
        if isinstance(to, Closed):
            self._ends(id, before, to)
        elif not isinstance(to, Lease):
            self._keeps_doubt(id, to)

    def _ends(self, id: MessageId, before: Place | None, to: Closed) -> None:
        """What is said of the end is true; only a destination that cannot be asked may be cancelled in doubt."""
        sent = self._token(id, before)
        if to is Closed.DELIVERED:
            self._must(self._rail.happened(sent), "delivered, but nothing happened:", id)
        elif to in (Closed.CANCELLED, Closed.EXPIRED) and self.lives[id].asked.destination in NEVER_TWICE:
            none = self._rail.untouched(sent) or self.lives[id].excused
            self._must(none, f"{to}, but it may have happened:", id)

    def _begins_claim(self, call: Call, id: MessageId, before: Pending, to: Lease) -> None:
        self._must(call.verb in {"claim", "claim_suspect", "settle"}, f"claimed by {call.verb}:", id)
        wrong = self._allowance.claim(to, self._loop.now)
        self._must(wrong is None, wrong or "", id)
        self._must(before.suspect == (call.verb == "claim_suspect"), "a suspect is claimed alone, others not:", id)
        self._must(_seconds(before.due_at) <= self._loop.now + 1e-6, "claimed before it was due:", id)
        self._must(to.worker == call.worker, "claimed for somebody else:", id)
        self._must(not to.alone or self._held_by.get(to.worker, 0) == 0, "a suspect is not alone:", id)
        self._held_by[to.worker] = self._held_by.get(to.worker, 0) + 1
        self._grant(Fence(id, to.attempt), call.process)
        self._must(not self._waits_for(id), "overtakes", id, self._waits_for(id))

    def _ends_claim(self, call: Call, id: MessageId, lease: Lease, to: Place) -> None:
        if isinstance(to, Lease):
            self._must(call.verb == "cancel", f"changed in flight by {call.verb}:", id)
            return
        self._held_by[lease.worker] -= 1
        self._allowance.end(lease)
        self._must(call.verb in ENDINGS, f"claim ended by {call.verb}:", id)
        if call.verb == "reap":
            self._must(self._is_over(call.worker, lease), "reaped too early:", id)
            self._spends(id, lease, to, 0)
            return
        ours = call.worker == lease.worker and Fence(id, lease.attempt) in call.fences
        self._must(ours, "a stale outcome was accepted:", id, lease.attempt, call.fences)
        outcome = next((o for o in call.outcomes if o.attempt.id == id), None) if call.verb != "hand_back" else None
        self._spends(id, lease, to, _cost(outcome))
        if outcome is not None:
            self._settled[outcome.attempt.fence] = (lease.worker, type(outcome.settlement.answer))
        if outcome is not None and call.verb == "settle":
            parked_for_that = outcome.settlement.park_reason is ParkReason.UNRECORDED
            unrecorded = lease.destination == RECORDED and outcome.settlement.answer is not None and not parked_for_that
            self._must(not unrecorded, "settled without its record:", id)

    def _is_over(self, dead: WorkerId | None, lease: Lease) -> bool:
        """Run out; or its worker is known to be dead, and is."""
        if dead is None:
            return _seconds(lease.until) < self._loop.now
        return dead == lease.worker and self.workers[dead].dead

    def _spends(self, id: MessageId, lease: Lease, to: Place, cost: int | None) -> None:
        if cost is not None and isinstance(to, Pending | Parked):
            self._must(to.spent == lease.spent + cost, "spent what it should not:", id, lease.spent, to.spent)

    def _keeps_doubt(self, id: MessageId, to: Pending | Parked) -> None:
        """Doubt is never forgotten: what is not in doubt has had no effect, and has none on its way."""
        if to.in_doubt_since is None and to.kept_answer is None and not self.lives[id].excused:
            self._must(self._rail.untouched(self._token(id, to)), "not in doubt, but it may have happened:", id)

    def _grant(self, fence: Fence, process: Process) -> None:
        lease = self._place_of(fence.id)
        if isinstance(lease, Lease):
            self._grants[fence] = Grant(_seconds(lease.until), process.behind_seconds)

    def _token(self, id: MessageId, place: Place | None) -> str:
        assert isinstance(place, Pending | Lease | Parked)
        return token(id, place.version, place.stage)

    def _waits_for(self, id: MessageId) -> MessageId | None:
        """An earlier message of the same key that has to come first."""
        life = self.lives[id]
        if life.asked.order_by is None:
            return None
        for earlier in self._keys[life.asked.tenant, life.asked.order_by]:
            if earlier is life:
                return None
            place = self._place_of(earlier.id)
            if isinstance(place, Pending | Lease) or (isinstance(place, Parked) and place.halts):
                return earlier.id
        return None

    def _beside(self, life: Life) -> list[MessageId]:
        """Others of the same key that somebody has in hand."""
        if life.asked.order_by is None:
            return []
        of_key = self._keys[life.asked.tenant, life.asked.order_by]
        return [other.id for other in of_key if other is not life and isinstance(self._place_of(other.id), Lease)]

    def stopped(self, process: Process) -> None:
        """Asked to, and with nothing in its way: it has handed back all that it had."""
        for worker, its in self.workers.items():
            left = its is process and self._held_by.get(worker, 0)
            self._must(not left, "a relay that was asked to stop has left claims behind:", left)

    # the destinations

    def send_began(self, sent: Sent) -> None:
        """I18: nothing is sent upon a lease that has run out, by the clock of whoever sends."""
        attempt, life = sent.attempt, self.lives[sent.attempt.id]
        crowded = self._allowance.begin_send(sent)
        self._must(crowded is None, crowded or "", attempt.id)
        grant = self._grants[attempt.fence]
        stood_still = sent.process.behind_seconds - grant.behind_seconds
        self._must(self._loop.now - stood_still <= grant.until + 1e-6, "sent on a lease that had run out:", attempt.id)
        place = self._place_of(attempt.id)
        if isinstance(place, Lease) and place.attempt == attempt.number:
            self._must(not self._beside(life), "two of one key are in flight:", attempt.id, self._beside(life))
            allowed = life.last_attempt is None or attempt.number <= life.last_attempt
            self._must(allowed, "sent after it was cancelled:", attempt.id)
        else:
            self._must(stood_still > 0, "sent without a claim:", attempt.id)
            life.excused = True
            self.late_sends += 1

    def send_ended(self, sent: Sent) -> None:
        """Answered, or cut off."""
        self._allowance.end_send(sent)

    def send_answered(self, sent: Sent) -> None:
        """A process has heard an answer. A deaf handler may have been given up before."""
        if not sent.deaf:
            self._answers[sent.attempt.fence] = sent.process

    def effect_happened(self, sent: Sent, count: int) -> None:
        twice = count > 1 and sent.never_twice and not self.lives[sent.attempt.id].excused
        self._must(not twice, "happened twice:", sent.attempt.id)

    # the end

    def unsettled(self) -> list[MessageId]:
        """What is neither closed, nor parked, nor waits behind something parked."""
        return [life.id for life in self.lives.values() if self._is_unsettled(life.id)]

    def _is_unsettled(self, id: MessageId) -> bool:
        place = self._place_of(id)
        if isinstance(place, Closed | Parked):
            return False
        first = self._waits_for(id)
        return first is None or not isinstance(self._place_of(first), Parked)

    def no_answer_is_lost(self, late: Collection[Fence]) -> None:
        """What a process that lived to the end has heard is written down: as an outcome, or as a late answer."""
        for fence, process in self._answers.items():
            kept = fence in self._settled or fence in late or process not in self.survivors
            self._must(kept, "an answer was lost:", fence)

    def look_back(self, id: MessageId, rows: Sequence[HistoryEntry]) -> None:
        """The archive has one row for every attempt, and one closing row where it is closed."""
        place = self._place_of(id)
        ended = [row.attempt for row in rows if row.verb in {"settle", "hand_back", "reap"}]
        self._must(sorted(ended) == list(range(1, len(ended) + 1)), "the archive lacks attempts:", id, ended)
        closing = [row.closed for row in rows if row.closed is not None]
        self._must(closing == ([place.value] if isinstance(place, Closed) else []), "closing rows:", id, closing)


def _shown(place: Place | None) -> str:
    if place is None or isinstance(place, Closed):
        return str(place)
    doubt = "?" if place.in_doubt_since is not None else ""
    kind = f"parked:{place.reason}" if isinstance(place, Parked) else type(place).__name__.lower()
    return f"{kind}#{place.attempt}{doubt}"


def _seconds(moment: datetime) -> float:
    return (moment - START).total_seconds()


def _cost(outcome: Outcome | None) -> int | None:
    """Ruling 12: an answer that was received, and an attempt in doubt. None: the budget begins anew."""
    if outcome is None:
        return 0
    if outcome.settlement.kind is SettlementKind.ADVANCE:
        return None
    answer: Answer | None = outcome.settlement.answer
    if outcome.settlement.park_reason is ParkReason.UNRECORDED:
        return 0
    if isinstance(answer, Unknown):
        return 0 if answer.from_lookup else 1
    if isinstance(answer, Retryable) and answer.destination_down and outcome.settlement.kind is SettlementKind.RETRY:
        return int(not outcome.settlement.down)
    return int(isinstance(answer, Retryable | Terminal))
