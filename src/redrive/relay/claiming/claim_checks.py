"""Before a message that has waited since its claim is sent, the database is asked whether it still may be (G-24).

A cancel, an expiry or evidence after the claim is in the database only. What begins within `FRESH_SECONDS` of its claim
or of the last check is not asked about. For the rest, one statement asks about all that waits, at most eight times a
second. So the first byte leaves at most `FRESH_SECONDS` and a round trip after the commit of a cancel. While the
database is away, nothing begins that would have to be asked about. SQL: `check_claims.sql`.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from redrive.ports import ClaimState, TransientFailure
from redrive.relay.claiming.claim import Claim
from redrive.relay.claiming.leases import Leases
from redrive.relay.context import UNREACHABLE_SECONDS, RelayContext
from redrive.relay.dispatching.queues import DestinationQueues

FRESH_SECONDS: Final = 0.25


class ClaimChecks:
    def __init__(self, context: RelayContext, queues: DestinationQueues, leases: Leases) -> None:
        self._context = context
        self._clock = context.clock
        self._events = context.events
        self._queues = queues
        self._leases = leases
        self._under_way: asyncio.Task[None] | None = None
        self._reached = True

    @property
    def is_under_way(self) -> bool:
        return self._under_way is not None and not self._under_way.done()

    def is_due(self, claim: Claim) -> bool:
        """What this process knows of the message is too old to send it."""
        return self._clock.monotonic() - claim.known_at > FRESH_SECONDS

    def begin_in_time(self, claim: Claim) -> None:
        """At half of that time, so that the answer is there before a slot needs it."""
        if self._clock.monotonic() - claim.known_at > FRESH_SECONDS / 2:
            _ = self._begin()

    async def check_waiting(self) -> bool:
        """Slots that ask at the same time share one statement. What must not be sent is handed back, which closes it
        after a cancel. False: the database could not be reached."""
        await asyncio.shield(self._begin())
        return self._reached

    def _begin(self) -> asyncio.Task[None]:
        if self._under_way is None or self._under_way.done():
            self._under_way = self._context.tasks.start(self._check_waiting())
        return self._under_way

    async def _check_waiting(self) -> None:
        waiting = [claim for queue in self._queues.values() for claim in queue.waiting]
        try:
            await self._check(waiting)
            self._reached = True
        except TransientFailure:
            self._reached = False
            self._events.emit("relay.unreachable", during="verb", tries=0)
            await self._clock.sleep(UNREACHABLE_SECONDS)
            return
        back = []
        for queue in self._queues.values():
            outdated = [claim for claim in queue.waiting if claim.outdated]
            for claim in outdated:
                queue.waiting.remove(claim)
            back += outdated
        await self._leases.hand_back(back)

    async def may_still_be_sent(self, claim: Claim) -> bool:
        """Right before its first byte, after a long lookup or validation."""
        try:
            await self._check([claim])
        except TransientFailure:
            self._events.emit("relay.unreachable", during="verb", tries=0)
            return False
        return not (claim.outdated or claim.lost)

    async def _check(self, claims: Sequence[Claim]) -> None:
        with self._events.step("check_claims", count=len(claims)) as added:
            found = await self._context.store.check_claims(self._context.worker, [claim.fence for claim in claims])
            added["lost"] = len(claims) - len(found)
        states = {state.fence: state for state in found}
        now = self._clock.monotonic()
        for claim in claims:
            state = states.get(claim.fence)
            if state is not None:
                claim.known_at = now
                claim.outdated = _is_outdated(claim, state)
            else:
                self._leases.lose(claim)


def _is_outdated(claim: Claim, state: ClaimState) -> bool:
    """What was known at the claim is heeded already: such a message is looked up, recorded or held, and never sent."""
    attempt = claim.attempt
    return (
        (state.cancel_requested and not attempt.cancel_requested)
        or (state.expired and not attempt.expired)
        or (state.has_evidence and not attempt.has_evidence)
    )
