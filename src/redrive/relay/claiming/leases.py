"""Every claim that one relay holds, from claim to settlement: renewed in time, known when it is lost, handed back.

A lease is counted from the moment it was asked for, on our own monotonic clock, so that it is never over before we
think so. Nothing is sent on one that may run out meanwhile (I18). Called by the loop; SQL: `renew.sql` and
`hand_back.sql`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from redrive.events import Events
from redrive.message import Attempt, Fence, MessageId, WorkerId
from redrive.ports import Clock, PutOff, Store, TransientFailure
from redrive.relay.claiming.claim import Claim
from redrive.relay.tasks import Tasks
from redrive.relay.until_reachable import UntilReachable
from redrive.settings import RENEWALS_PER_LEASE, RelayLimits

WAITERS_MAX = 2  # for claims to hand back that another transaction holds, each on a connection of its own
WAIT_SECONDS = 5.0  # then another one is waited for
AGAIN_SECONDS = 0.02  # most rows are held for a moment only, by a renewal for instance


class Leases:
    """`on_let_go` hears that there may be room again; `on_lost` that somebody reaped a claim of ours."""

    def __init__(
        self,
        store: Store,
        worker: WorkerId,
        *,
        limits: RelayLimits,
        clock: Clock,
        events: Events,
        tasks: Tasks,
        on_let_go: Callable[[], None],
        on_lost: Callable[[Claim], None],
    ) -> None:
        self.held: dict[MessageId, Claim] = {}
        self._given_up: set[Fence] = set()
        self._store = store
        self._worker = worker
        self._limits = limits
        self._clock = clock
        self._events = events
        self._until_reachable = UntilReachable(clock, events)
        self._tasks = tasks
        self._waiters = asyncio.Semaphore(WAITERS_MAX)
        self._handing_back = 0
        self._all_back = asyncio.Event()
        self._all_back.set()
        self._on_let_go = on_let_go
        self._on_lost = on_lost

    def take(self, attempt: Attempt, *, asked_at: float, received_at: float, streak: int = 0) -> Claim:
        claim = Claim(attempt, received_at, asked_at + self._limits.lease_seconds, known_at=asked_at, streak=streak)
        self.held[attempt.id] = claim
        return claim

    def let_go(self, fences: Sequence[Fence]) -> None:
        """These are over, whatever became of them."""
        for fence in fences:
            held = self.held.get(fence.id)
            if held is not None and held.attempt.number == fence.attempt:  # not a later claim of the same message
                del self.held[fence.id]
        self._on_let_go()

    def give_up(self, fence: Fence) -> None:
        """This one is not settled and not renewed any more: it was begun, and comes back in doubt when it runs out."""
        self._given_up.add(fence)
        self.let_go([fence])

    def knows(self, fence: Fence) -> bool:
        """Whether this process has, or had, that claim in hand. False: nothing of it was begun."""
        held = self.held.get(fence.id)
        return fence in self._given_up or (held is not None and held.attempt.number == fence.attempt)

    def count_of(self, destination: str) -> int:
        """How many claims of one destination are in hand, or not settled yet."""
        return sum(claim.attempt.destination == destination for claim in self.held.values())

    def is_short(self, claim: Claim) -> bool:
        """Too little is left to send on; normally a renewal has come long before."""
        enough = self._limits.lease_seconds / RENEWALS_PER_LEASE
        return claim.lost or claim.lease_until - self._clock.monotonic() < enough

    async def hand_back(self, claims: Sequence[Claim], *, suspect: bool = False) -> None:
        """Claims that were not begun; nothing is spent. One that another transaction holds goes back when that ends.

        suspect: they are to be run in a process of their own.
        """
        if claims:
            await self._hand_back([claim.fence for claim in claims], suspect=suspect)

    async def hand_back_unbegun(self, fences: Sequence[Fence]) -> None:
        """Claims that this process has not taken in hand."""
        if fences:
            await self._hand_back(fences)

    async def put_off(self, claims: Sequence[tuple[Claim, PutOff]]) -> None:
        """Claims that were not begun, and are not to be sent yet."""
        if claims:
            later = {claim.fence: until for claim, until in claims}
            await self._hand_back(list(later), put_off=later)

    async def hand_back_unknown(self, fences: Sequence[Fence]) -> None:
        """Claims whose reply was lost: they are ours, and nothing of them was begun."""
        if fences:
            self._events.emit("relay.reply_lost", worker=self._worker, count=len(fences))
            await self._hand_back(fences)

    async def _hand_back(
        self, fences: Sequence[Fence], *, suspect: bool = False, put_off: Mapping[Fence, PutOff] | None = None
    ) -> None:
        with self._handing():
            back = await self._back(fences, suspect=suspect, put_off=put_off, wait=False)
            self.let_go(back)
            for fence in set(fences).difference(back):
                _ = self._tasks.start(self._hand_back_later(fence, suspect=suspect, put_off=put_off))

    async def _hand_back_later(self, fence: Fence, *, suspect: bool, put_off: Mapping[Fence, PutOff] | None) -> None:
        """One that was lost, or that another transaction holds: an open cancel, or our own renewal for a moment."""
        with self._handing():
            await self._clock.sleep(AGAIN_SECONDS)
            while not await self._back([fence], suspect=suspect, put_off=put_off, wait=False):
                async with self._waiters:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(WAIT_SECONDS):
                            await self._back([fence], suspect=suspect, put_off=put_off, wait=True)
                            break
            self.let_go([fence])

    async def _back(
        self, fences: Sequence[Fence], *, suspect: bool, put_off: Mapping[Fence, PutOff] | None, wait: bool
    ) -> Sequence[Fence]:
        with self._events.step("hand_back", count=len(fences), suspect=suspect):
            return await self._until_reachable.until_reached(
                lambda: self._store.hand_back(self._worker, fences, suspect=suspect, put_off=put_off, wait=wait)
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
        """Whether a claim waits to be handed back."""
        return self._handing_back > 0

    async def all_back(self) -> None:
        """What somebody is handing back is in nobody's hand any more, and must not be left behind by a stop."""
        await self._all_back.wait()

    async def renewing(self) -> None:
        """Until cancelled."""
        while True:
            await self._clock.sleep(self._limits.renew_every_seconds / 2)
            with suppress(TransientFailure):
                await self._renew()

    async def _renew(self) -> None:
        now = self._clock.monotonic()
        enough = now + 2 * self._limits.renew_every_seconds
        due = [claim for claim in self.held.values() if claim.lease_until < enough and not claim.lost]
        if not due:
            return
        fences = [claim.fence for claim in due]
        with self._events.step("renew", count=len(fences)) as added:
            kept = set(await self._store.renew(self._worker, fences, lease_seconds=self._limits.lease_seconds))
            added["lost"] = len(fences) - len(kept)
        for claim in due:
            if claim.fence in kept:
                claim.lease_until = now + self._limits.lease_seconds
            else:
                self.lose(claim)

    def lose(self, claim: Claim) -> None:
        """The database says that this claim is not ours; it may also be settled since the database was asked."""
        if self.held.get(claim.attempt.id) is claim:
            claim.lost = True
            self._on_lost(claim)
