"""What people do to a message of the model store: cancel it, the five ways out of parked, and skip.

`ModelStore` builds on it. Each act needs an actor and a reason, fits some states and is refused with the
state's word in the others, and changes nothing then. The SQL beside it: verbs/cancel.sql,
verbs/parked.sql, and skip in verbs/lanes.sql.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from redrive.errors import ActRefused, ApproverNeeded, NotFound
from redrive.message import CancelAnswer, Closed, MessageId, ParkReason
from redrive.ports import Now
from tests.model_store import transitions
from tests.model_store.jumps import Jumps
from tests.model_store.tables import Proof, Proposal, require_actor_and_reason
from tests.model_store.transitions import Act, Lane, Lease, Parked, Pending, Place


class Desk(Jumps):
    """Cancel, requeue, confirm, deny, repair, discard, skip."""

    async def cancel(
        self, id: MessageId, *, actor: str | None = None, reason: str | None = None, now: Now = None
    ) -> CancelAnswer:
        if actor is not None:
            require_actor_and_reason(actor, reason or "")
        place = self._known(id)
        if id in self._fenced:
            return CancelAnswer.BUSY
        if isinstance(place, Parked):
            return CancelAnswer.PARKED
        if isinstance(place, Closed):
            return CancelAnswer.ALREADY_CLOSED
        proven = self.has_evidence(id)
        if actor is not None:
            if proven:
                raise _proven(id, "cancel")
            self._second_person("cancel", place, actor, self.at(now))
        move = transitions.cancelled(place, actor=actor, reason=reason, now=self.at(now), proven=proven)
        self._move(id, move)
        return _cancel_answer(move.to, proven=proven)

    async def requeue(
        self,
        id: MessageId,
        *,
        actor: str,
        reason: str,
        stage: str | None = None,
        out_of_order: bool = False,
        now: Now = None,
    ) -> None:
        act, parked = self._act("requeue", id, actor, reason, {ParkReason.DEAD})
        if stage not in (None, parked.stage) and self._destination(parked.destination).money:
            raise ActRefused(f"Message {id}: its destination moves money, and a payment has one stage.")
        if self._has_gone_on(parked) and not out_of_order:
            raise ActRefused(f"Message {id}: later messages of its ordering key went out without it.")
        self._second_person("requeue", parked, actor, self.at(now), out_of_order)
        doubt = parked.in_doubt_since
        self._move(id, transitions.pended_again(parked, act, self.at(now), stage=stage, in_doubt_since=doubt))

    async def confirm(
        self, id: MessageId, *, actor: str, reason: str, reference: str | None = None, now: Now = None
    ) -> None:
        """Where the destination records, the answer goes back to be recorded; it is never sent."""
        act, parked = self._act("confirm", id, actor, reason, {ParkReason.DEAD, ParkReason.HELD})
        self._second_person("confirm", parked, actor, self.at(now), reference)
        if self.has_record(parked.destination):
            answer = {"answer": "delivered", "reference": reference}
            move = transitions.pended_again(parked, act, self.at(now), kept_answer=answer)
        else:
            move = transitions.closed_by(parked, act, Closed.DELIVERED, self.at(now), reference=reference)
        self._move(id, move)

    async def deny(self, id: MessageId, *, actor: str, reason: str, now: Now = None) -> None:
        """Where the destination can be asked, the doubt stays and it is asked first."""
        act, parked = self._act("deny", id, actor, reason, {ParkReason.HELD})
        self._second_person("deny", parked, actor, self.at(now))
        asked = self._destination(parked.destination).in_doubt == "lookup"
        doubt = (parked.in_doubt_since or self.at(now)) if asked else None
        self._move(id, transitions.pended_again(parked, act, self.at(now), in_doubt_since=doubt))

    async def repair(self, id: MessageId, *, actor: str, reason: str, now: Now = None) -> None:
        act, parked = self._act("repair", id, actor, reason, {ParkReason.UNRECORDED})
        doubt, kept = parked.in_doubt_since, parked.kept_answer
        self._move(id, transitions.pended_again(parked, act, self.at(now), in_doubt_since=doubt, kept_answer=kept))

    async def discard(self, id: MessageId, *, actor: str, reason: str, now: Now = None) -> None:
        act, parked = self._act("discard", id, actor, reason, set(ParkReason))
        self._second_person("discard", parked, actor, self.at(now))
        self._move(id, transitions.closed_by(parked, act, Closed.DISCARDED, self.at(now)))

    async def skip(
        self, tenant: str, order_by: str, *, actor: str, reason: str, sequence: int | None = None, now: Now = None
    ) -> None:
        require_actor_and_reason(actor, reason)
        lane = tenant, order_by
        if lane not in self._last_sequences:
            raise NotFound(f"There is no ordering key {order_by!r} of tenant {tenant!r}.", next="redrive keys list")
        head = self._blocking(lane)
        if any(lease.lane == lane for lease in self._leases.values()):
            raise _not_skipped(order_by, "its head is being sent just now; it cannot be skipped before it comes back.")
        if head is None:
            raise _not_skipped(order_by, "nothing of it waits.")
        if sequence not in (None, head.sequence):
            raise _not_skipped(order_by, "its head is another one by now; nothing was skipped.")
        if self.has_evidence(head.id) and not _is_unrecorded(head):
            raise _proven(head.id, "skip")
        self._second_person("skip", head, actor, self.at(now))
        act = Act("skip", actor, reason)
        self._move(head.id, transitions.closed_by(head, act, Closed.SKIPPED, self.at(now)))

    def has_evidence(self, id: MessageId) -> bool:
        return id in self._evidence

    def add_evidence(
        self, id: MessageId, kind: str, subject: str, *, reference: str | None = None, now: Now = None
    ) -> None:
        """Kept once; the message is held, unless it is in flight or has its answer. SQL: verbs/evidence.sql."""
        known = self._evidence.get(id, ())
        if all((proof.kind, proof.subject) != (kind, subject) for proof in known):
            known = (*known, Proof(kind, subject, reference, self.at(now)))
            self._evidence[id] = tuple(sorted(known, key=lambda proof: (proof.at, proof.kind, proof.subject)))
        place = self.place_of(id)
        waits = isinstance(place, Pending) and place.kept_answer is None
        dead = isinstance(place, Parked) and place.reason is ParkReason.DEAD
        if isinstance(place, Pending | Parked) and (waits or dead):
            first = self._evidence[id][0]
            told = f", reference {first.reference}" if first.reference is not None else ""
            text = f"There is evidence that it was delivered: {first.kind}{told}."
            self._move(id, transitions.held_by_evidence(place, text, self.at(now)))

    def _second_person(
        self, act: str, place: Pending | Lease | Parked, actor: str, now: datetime, options: object = None
    ) -> None:
        """Where money moves, two people ask for the same within a day, and the second one is an approver."""
        if not self._destination(place.destination).money:
            return
        parked_at = place.parked_at if isinstance(place, Parked) else None
        reason = place.reason if isinstance(place, Parked) else None
        binding = (place.attempt, parked_at, reason, place.version, options)
        known = self._proposals.get((act, place.id))
        if known and (known.asked_by != actor and known.asked_at > now - _PROPOSED_FOR and known.binding == binding):
            if not self.may_approve:
                raise ApproverNeeded(f"Message {place.id}: to be the second takes the role approver.")
            for key in [key for key in self._proposals if key[1] == place.id]:
                del self._proposals[key]
            return
        self._proposals[act, place.id] = Proposal(actor, now, binding)
        raise ActRefused(f"Message {place.id}: its destination moves money; a second person has to ask too.")

    def _blocking(self, lane: Lane) -> Pending | Parked | None:
        """The head of a lane that nobody has in hand, whatever it waits for."""
        waiting: list[Pending | Parked] = [p for p in self._pending.values() if p.lane == lane]
        waiting += [p for p in self._parked.values() if p.lane == lane and p.halts]
        return min(waiting, key=lambda place: place.sequence or 0, default=None)

    def _has_gone_on(self, parked: Parked) -> bool:
        """Whether any later message of its lane was claimed or has ended."""
        if parked.lane is None or parked.sequence is None:
            return False
        if parked.halts and all(row.verb in _RELAYS_VERBS for row in self._archive.get(parked.id, ())):
            return False  # it has halted its lane since its first attempt
        untouched = (
            p for p in self._pending.values() if p.lane == parked.lane and not p.attempt and _is_later(p, parked)
        )
        return self._last_sequences[parked.lane] - parked.sequence > sum(1 for _ in untouched)

    def _act(self, verb: str, id: MessageId, actor: str, reason: str, fits: set[ParkReason]) -> tuple[Act, Parked]:
        require_actor_and_reason(actor, reason)
        place = self._known(id)
        if verb in _REFUSED and isinstance(place, Parked) and self.has_evidence(id) and not _is_unrecorded(place):
            raise _proven(id, verb)
        if isinstance(place, Parked) and place.reason in fits:
            return Act(verb, actor, reason), place
        word = place.reason if isinstance(place, Parked) else self.state_of(id)
        raise ActRefused(f"Message {id} is {word}; {verb} does not apply.")


_RELAYS_VERBS: Final = frozenset({"settle", "complete", "hand_back", "reap"})


def _is_later(one: Pending, other: Parked) -> bool:
    return one.sequence is not None and other.sequence is not None and one.sequence > other.sequence


_PROPOSED_FOR = timedelta(days=1)
_REFUSED = frozenset({"requeue", "deny", "discard"})


def _is_unrecorded(place: Pending | Parked) -> bool:
    return isinstance(place, Parked) and place.reason is ParkReason.UNRECORDED


def _proven(id: MessageId, verb: str) -> ActRefused:
    return ActRefused(f"Message {id}: something says that it was delivered; {verb} is refused.")


def _not_skipped(order_by: str, why: str) -> ActRefused:
    return ActRefused(f"Ordering key {order_by!r}: {why}", next="redrive keys list")


def _cancel_answer(to: Place, *, proven: bool) -> CancelAnswer:
    if isinstance(to, Closed):
        return CancelAnswer.CANCELLED
    if to.in_doubt_since is not None or (proven and isinstance(to, Pending) and to.kept_answer is None):
        return CancelAnswer.IN_DOUBT
    return CancelAnswer.IN_FLIGHT
