"""Handing over a lane (LANES.md): whoever delivered one message of an ordering key may have the next one at once.

It saves a claim per message. A lane stays with one relay for at most `STREAK_MAX` messages in a row, then it takes its
turn among the others. Called by the settler; SQL: `settle_delivered` in `settle.sql`, `next_heads` in `lanes.sql`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from redrive.message import Attempt
from redrive.ports import HandOver, Outcome
from redrive.relay.claiming.leases import Leases

STREAK_MAX: Final = 20


class HandOvers:
    """may_take: whether the relay still takes messages of this destination; take: puts one in hand, with its streak.

    on_released: a lane goes on and was not handed over, so the relay looks for its next message.
    """

    def __init__(
        self,
        leases: Leases,
        *,
        lease_seconds: float,
        may_take: Callable[[str], bool],
        take: Callable[[Attempt, float, int], None],
        on_released: Callable[[], None],
    ) -> None:
        self._leases = leases
        self._lease_seconds = lease_seconds
        self._may_take = may_take
        self._take = take
        self._on_released = on_released

    def hand_over(self, batch: Sequence[Outcome]) -> HandOver | None:
        """For which of these the loop would take the next message of the lane."""
        ids = {
            outcome.attempt.id
            for outcome in batch
            if outcome.attempt.sequence is not None
            and self._streak(outcome.attempt) < STREAK_MAX
            and self._may_take(outcome.attempt.destination)
        }
        return HandOver(ids, self._lease_seconds) if ids else None

    def take(self, batch: Sequence[Outcome], attempts: Sequence[Attempt], *, asked_at: float) -> None:
        """Take these in hand; they follow messages of the batch."""
        streaks = {_lane(outcome.attempt): self._streak(outcome.attempt) for outcome in batch}
        for attempt in attempts:
            self._take(attempt, asked_at, streaks[_lane(attempt)] + 1)

    def over(self, batch: Sequence[Outcome], attempts: Sequence[Attempt]) -> None:
        """These are settled, and those were handed over."""
        released = {_lane(outcome.attempt) for outcome in batch if outcome.attempt.sequence is not None}
        if released - {_lane(attempt) for attempt in attempts}:
            self._on_released()

    def _streak(self, attempt: Attempt) -> int:
        claim = self._leases.held.get(attempt.id)
        return STREAK_MAX if claim is None or claim.lost else claim.streak


def _lane(attempt: Attempt) -> tuple[str, str | None]:
    return attempt.tenant, attempt.order_by
