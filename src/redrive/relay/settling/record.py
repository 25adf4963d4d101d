"""Writes one outcome together with the user's `record`, in one transaction.

It waits for a database that is away. A `record` that deadlocks or times out every time counts as failed.
"""

import asyncio

from redrive.ports import Outcome, Record, RecordFailed, Settled, TransientFailure
from redrive.relay.context import RelayContext

WAIT_SECONDS = 10.0  # for a transaction that holds a claim; then another one is waited for
RECORD_LOCK_SECONDS = 0.25  # for a lock that a `record` asks for, while other records wait for its place
RECORD_LOCK_WAIT_SECONDS = 2.0  # and where no other record waits for it
RECORD_TRIES_MAX = 10
AGAIN_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0)


class ClaimWaits(Exception):
    """Another transaction holds the claim; nothing was recorded."""


async def write_recorded(context: RelayContext, outcome: Outcome, record: Record, *, wait: bool) -> Settled:
    """Raises RecordWaits, ClaimWaits, TimeoutError, or what the `record` raised. wait: no other record waits for this
    place, so it may wait for a lock."""
    tries = _Tries(context, outcome, record, wait=wait)
    return await context.until_reachable(tries, during="settle", pauses=AGAIN_SECONDS)


class _Tries:
    def __init__(self, context: RelayContext, outcome: Outcome, record: Record, *, wait: bool) -> None:
        self._context = context
        self._outcome = outcome
        self._record = record
        self._wait = wait
        self._step: str | None = None
        self._failures = 0

    async def __call__(self) -> Settled:
        again, self._step = self._step is not None, ""
        try:
            if again:
                await self._renew()
            return await self._write()
        except TransientFailure as failure:
            self._failures += self._step == "record"
            if self._failures >= RECORD_TRIES_MAX:
                raise RecordFailed from failure.__cause__
            raise

    async def _write(self) -> Settled:
        context, outcome, seconds, wait = self._context, self._outcome, self._context.limits.record_seconds, self._wait
        loop = asyncio.get_running_loop()
        lock_seconds = min(RECORD_LOCK_WAIT_SECONDS if wait else RECORD_LOCK_SECONDS, seconds / 2)
        fenced = False

        def on_step(step: str) -> None:
            nonlocal fenced
            if step != "fence":
                fenced = True
            if step == "record":
                limit.reschedule(loop.time() + seconds)
            self._step = step
            context.events.emit(f"{step}.start")

        try:
            with context.events.step("settle_one", id=outcome.attempt.id):
                async with asyncio.timeout(WAIT_SECONDS if wait else seconds) as limit:
                    settled = await context.store.settle_one(
                        context.worker, outcome, self._record, on_step=on_step, wait=wait, lock_seconds=lock_seconds
                    )
        except TimeoutError:
            if fenced:
                raise
            raise ClaimWaits from None
        if settled.busy:
            raise ClaimWaits
        return settled

    async def _renew(self) -> None:
        """A claim cannot be renewed while its record holds it, so the next try begins with a whole lease."""
        attempt, context = self._outcome.attempt, self._context
        with context.events.step("renew", count=1):
            await context.store.renew(context.worker, [attempt.fence], lease_seconds=attempt.lease_seconds)
