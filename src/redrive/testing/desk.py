"""What people do to a message of the model store: cancel it, and the five ways out of parked.

`ModelStore` builds on it. Each act needs an actor and a reason, fits some states and is refused with the
state's word in the others, and changes nothing then. The SQL beside it: verbs/cancel.sql,
verbs/parked.sql.
"""

from __future__ import annotations

from datetime import datetime

from redrive.errors import ActRefused
from redrive.message import CancelAnswer, Closed, MessageId, ParkReason
from redrive.testing import transitions
from redrive.testing.tables import require_actor_and_reason
from redrive.testing.transitions import Act, Parked, Place
from redrive.testing.upkeep import Upkeep


class Desk(Upkeep):
    """Cancel, requeue, confirm, deny, repair, discard."""

    async def cancel(
        self,
        id: MessageId,
        *,
        actor: str | None = None,
        reason: str | None = None,
        now: datetime | None = None,
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
        move = transitions.cancelled(place, actor=actor, reason=reason, now=self.at(now))
        self._move(id, move)
        return _cancel_answer(move.to)

    async def requeue(
        self, id: MessageId, *, actor: str, reason: str, stage: str | None = None, now: datetime | None = None
    ) -> None:
        act, parked = self._act("requeue", id, actor, reason, {ParkReason.DEAD})
        doubt = parked.in_doubt_since
        self._move(id, transitions.pended_again(parked, act, self.at(now), stage=stage, in_doubt_since=doubt))

    async def confirm(
        self,
        id: MessageId,
        *,
        actor: str,
        reason: str,
        reference: str | None = None,
        now: datetime | None = None,
    ) -> None:
        """Where the destination records, the answer goes back to be recorded; it is never sent."""
        act, parked = self._act("confirm", id, actor, reason, {ParkReason.HELD})
        if self.has_record(parked.destination):
            answer = {"answer": "delivered", "reference": reference}
            move = transitions.pended_again(parked, act, self.at(now), kept_answer=answer)
        else:
            move = transitions.closed_by(parked, act, Closed.DELIVERED, self.at(now), reference=reference)
        self._move(id, move)

    async def deny(self, id: MessageId, *, actor: str, reason: str, now: datetime | None = None) -> None:
        act, parked = self._act("deny", id, actor, reason, {ParkReason.HELD})
        self._move(id, transitions.pended_again(parked, act, self.at(now)))

    async def repair(self, id: MessageId, *, actor: str, reason: str, now: datetime | None = None) -> None:
        act, parked = self._act("repair", id, actor, reason, {ParkReason.UNRECORDED})
        doubt, kept = parked.in_doubt_since, parked.kept_answer
        self._move(id, transitions.pended_again(parked, act, self.at(now), in_doubt_since=doubt, kept_answer=kept))

    async def discard(self, id: MessageId, *, actor: str, reason: str, now: datetime | None = None) -> None:
        act, parked = self._act("discard", id, actor, reason, set(ParkReason))
        self._move(id, transitions.closed_by(parked, act, Closed.DISCARDED, self.at(now)))

    def _act(self, verb: str, id: MessageId, actor: str, reason: str, fits: set[ParkReason]) -> tuple[Act, Parked]:
        require_actor_and_reason(actor, reason)
        place = self._known(id)
        if isinstance(place, Parked) and place.reason in fits:
            return Act(verb, actor, reason), place
        word = place.reason if isinstance(place, Parked) else self.state_of(id)
        raise ActRefused(f"Message {id} is {word}; {verb} does not apply.")


def _cancel_answer(to: Place) -> CancelAnswer:
    if isinstance(to, Closed):
        return CancelAnswer.CANCELLED
    if to.in_doubt_since is not None:
        return CancelAnswer.IN_DOUBT
    return CancelAnswer.IN_FLIGHT
