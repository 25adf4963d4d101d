"""Handing over a lane (`store/sql/LANES.md`): the relay that delivered a message of an ordering key gets the next one.

It saves a claim per message. After `STREAK_MAX` messages in a row the lane takes its turn among the others. SQL:
`settle_delivered` in `settle.sql`, `next_heads` in `lanes.sql`.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

from redrive.message import Attempt
from redrive.ports import HandOver, Outcome
from redrive.relay.claiming.intake import Intake
from redrive.relay.claiming.leases import Leases
from redrive.relay.claiming.lost_replies import LostReplies
from redrive.relay.context import RelayContext
from redrive.relay.dispatching.queues import DestinationQueues

STREAK_MAX: Final = 20


@dataclass(eq=False)
class HandOvers:
    context: RelayContext
    queues: DestinationQueues
    leases: Leases
    intake: Intake
    lost_replies: LostReplies

    def under_way(self) -> AbstractContextManager[None]:
        """Around a settle that may hand over."""
        return self.lost_replies.handing_over()

    def hand_over(self, batch: Sequence[Outcome]) -> HandOver | None:
        """For which of these the relay takes the next message of the lane."""
        ids = {
            outcome.attempt.id
            for outcome in batch
            if outcome.attempt.sequence is not None
            and self._streak(outcome.attempt) < STREAK_MAX
            and self.intake.may_take(outcome.attempt.destination)
        }
        return HandOver(ids, self.context.limits.lease_seconds) if ids else None

    def take(self, batch: Sequence[Outcome], attempts: Sequence[Attempt], *, asked_at: float) -> None:
        """These follow messages of the batch."""
        streaks = {_lane(outcome.attempt): self._streak(outcome.attempt) for outcome in batch}
        for attempt in attempts:
            self.intake.take_handed_over(attempt, asked_at=asked_at, streak=streaks[_lane(attempt)] + 1)

    def over(self, batch: Sequence[Outcome], attempts: Sequence[Attempt]) -> None:
        """A lane that was not handed over goes on: poll for its next message."""
        released = {_lane(outcome.attempt) for outcome in batch if outcome.attempt.sequence is not None}
        if released - {_lane(attempt) for attempt in attempts}:
            self.queues.poll_now()

    def _streak(self, attempt: Attempt) -> int:
        claim = self.leases.claims.get(attempt.id)
        return STREAK_MAX if claim is None or claim.lost else claim.streak


def _lane(attempt: Attempt) -> tuple[str, str | None]:
    return attempt.tenant, attempt.order_by
