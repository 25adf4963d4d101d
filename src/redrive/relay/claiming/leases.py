"""Every claim of one relay, from claim to settlement: renewed in time, noticed when lost, handed back.

A lease counts from the moment it was asked for (monotonic), so it is never over before we think so. Nothing is sent on
one that may run out meanwhile. SQL: `renew.sql`, `hand_back.sql`.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from redrive.message import Attempt, Fence, MessageId
from redrive.ports import PutOff, TransientFailure
from redrive.relay.claiming.claim import Claim
from redrive.relay.context import RelayContext
from redrive.relay.dispatching.queues import DestinationQueues
from redrive.relay.fair_places import FairQueue
from redrive.settings import RENEWALS_PER_LEASE

# For claims of one destination to hand back that another transaction holds, each on a connection of its own; twice as
# many for all.
WAITERS_MAX = 2
WAIT_SECONDS = 5.0  # then another one is waited for
AGAIN_SECONDS = 0.02  # most rows are held for a moment only, by a renewal for instance


class Leases:
    """claims: by message, until settled, handed back or lost."""

    def __init__(self, context: RelayContext, queues: DestinationQueues) -> None:
        self.claims: dict[MessageId, Claim] = {}
        self._given_up: set[Fence] = set()
        self._context = context
        self._clock = context.clock
        self._events = context.events
        self._limits = context.limits
        self._queues = queues
        self._waiters = FairQueue(2 * WAITERS_MAX)
        self._handing_back = 0
        self._all_back = asyncio.Event()
        self._all_back.set()

    def take(self, attempt: Attempt, *, asked_at: float, received_at: float, streak: int = 0) -> Claim:
        claim = Claim(attempt, received_at, asked_at + self._limits.lease_seconds, known_at=asked_at, streak=streak)
        self.claims[attempt.id] = claim
        return claim

    def let_go(self, fences: Sequence[Fence]) -> None:
        for fence in fences:
            claim = self.claims.get(fence.id)
            if claim is not None and claim.attempt.number == fence.attempt:  # not a later claim of the same message
                del self.claims[fence.id]
        self._queues.freed()

    def give_up(self, fence: Fence) -> None:
        """Not settled and not renewed any more: it was begun, and comes back in doubt when it runs out."""
        self._given_up.add(fence)
        self.let_go([fence])

    def knows(self, fence: Fence) -> bool:
        """False: this process never had that claim, so nothing of it was begun."""
        claim = self.claims.get(fence.id)
        return fence in self._given_up or (claim is not None and claim.attempt.number == fence.attempt)

    def count_of(self, destination: str) -> int:
        return sum(claim.attempt.destination == destination for claim in self.claims.values())

    def is_short(self, claim: Claim) -> bool:
        """Too little is left to send on; normally a renewal comes long before."""
        enough = self._limits.lease_seconds / RENEWALS_PER_LEASE
        return claim.lost or claim.lease_until - self._clock.monotonic() < enough

    async def hand_back(self, claims: Sequence[Claim], *, suspect: bool = False) -> None:
        """Claims that were not begun; nothing is spent. One that another transaction holds goes back when that ends.
        suspect: to be run in a child process."""
        await self.hand_back_fences([claim.fence for claim in claims], suspect=suspect)

    async def put_off(self, claims: Sequence[tuple[Claim, PutOff]]) -> None:
        """Claims that were not begun, and are not to be sent yet."""
        later = {claim.fence: until for claim, until in claims}
        await self.hand_back_fences(list(later), put_off=later)

    async def hand_back_unknown(self, fences: Sequence[Fence]) -> None:
        """Claims whose reply was lost: they are ours, and nothing of them was begun."""
        if fences:
            self._events.emit("relay.reply_lost", worker=self._context.worker, count=len(fences))
            await self.hand_back_fences(fences)

    async def hand_back_fences(
        self, fences: Sequence[Fence], *, suspect: bool = False, put_off: Mapping[Fence, PutOff] | None = None
    ) -> None:
        if not fences:
            return
        with self._handing():
            back = await self._back(fences, suspect=suspect, put_off=put_off, wait=False)
            self.let_go(back)
            for fence in set(fences).difference(back):
                _ = self._context.tasks.start(self._hand_back_later(fence, suspect=suspect, put_off=put_off))

    async def _hand_back_later(self, fence: Fence, *, suspect: bool, put_off: Mapping[Fence, PutOff] | None) -> None:
        """Lost, or held by another transaction: an open cancel, or our own renewal for a moment."""
        claim = self.claims.get(fence.id)
        destination = "" if claim is None else claim.attempt.destination
        with self._handing():
            await self._clock.sleep(AGAIN_SECONDS)
            while not await self._back([fence], suspect=suspect, put_off=put_off, wait=False):
                async with self._waiters.place(destination):
                    with suppress(TimeoutError):
                        async with asyncio.timeout(WAIT_SECONDS):
                            await self._back([fence], suspect=suspect, put_off=put_off, wait=True)
                            break
            self.let_go([fence])

    async def _back(
        self, fences: Sequence[Fence], *, suspect: bool, put_off: Mapping[Fence, PutOff] | None, wait: bool
    ) -> Sequence[Fence]:
        store, worker = self._context.store, self._context.worker
        return await self._context.step(
            "hand_back",
            lambda: store.hand_back(worker, fences, suspect=suspect, put_off=put_off, wait=wait),
            count=len(fences),
            suspect=suspect,
        )

    @contextmanager
    def _handing(self) -> Iterator[None]:
        self._handing_back += 1
        self._all_back.clear()
        try:
            yield
        finally:
            self._handing_back -= 1
            if not self._handing_back:
                self._all_back.set()

    @property
    def handing_back(self) -> bool:
        return self._handing_back > 0

    async def all_back(self) -> None:
        """Nothing is being handed back: a stop must not leave such a claim behind."""
        await self._all_back.wait()

    async def renewing(self) -> None:
        while True:
            await self._clock.sleep(self._limits.renew_every_seconds / 2)
            with suppress(TransientFailure):
                await self._renew()

    async def _renew(self) -> None:
        now = self._clock.monotonic()
        enough = now + 2 * self._limits.renew_every_seconds
        due = [claim for claim in self.claims.values() if claim.lease_until < enough and not claim.lost]
        if not due:
            return
        fences = [claim.fence for claim in due]
        with self._events.step("renew", count=len(fences)) as added:
            store, worker = self._context.store, self._context.worker
            kept = set(await store.renew(worker, fences, lease_seconds=self._limits.lease_seconds))
            added["lost"] = len(fences) - len(kept)
        for claim in due:
            if claim.fence in kept:
                claim.lease_until = now + self._limits.lease_seconds
            else:
                self.lose(claim)

    def lose(self, claim: Claim) -> None:
        """The database says that the claim is not ours: it was reaped, or settled since it was asked. What waits is
        dropped; what runs goes on, and its outcome will be refused and kept."""
        attempt = claim.attempt
        if self.claims.get(attempt.id) is claim:
            claim.lost = True
            if self._queues.drop(claim):
                self.let_go([claim.fence])
            self._events.emit("message.lease_lost", id=attempt.id, destination=attempt.destination)
