"""After a lost reply: which claims the database has given this relay without its knowledge (G-14)."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from redrive.ports import TransientFailure
from redrive.relay.claiming.leases import Leases
from redrive.relay.context import UNREACHABLE_SECONDS, RelayContext
from redrive.relay.crash.money_check import MoneyCheck

LOOKS_PER_LEASE = 10  # how often a relay that lost a reply asks for the claims that it holds


class LostReplies:
    def __init__(self, context: RelayContext, leases: Leases, money: MoneyCheck) -> None:
        self._context = context
        self._leases = leases
        self._money = money
        self._until: float | None = None  # until when claims may turn up that this process does not know
        self._look_at = 0.0
        self._handing_over: set[asyncio.Future[None]] = set()

    def note(self) -> None:
        """The database may have claimed for this relay without its knowledge."""
        now = self._context.clock.monotonic()
        self._until = now + self._context.limits.lease_seconds
        self._look_at = now

    @contextmanager
    def handing_over(self) -> Iterator[None]:
        """Around a settle that may hand over the next message of a lane."""
        ended = asyncio.get_running_loop().create_future()
        self._handing_over.add(ended)
        try:
            yield
        except TransientFailure:
            self.note()
            raise
        finally:
            self._handing_over.discard(ended)
            if not ended.done():
                ended.set_result(None)

    async def hand_back(self, *, at_once: bool = False) -> None:
        """Hand back the claims of ours that this process does not know, before they run out. No claim is under way.

        A settle under way may have handed over what is not known yet; what is still unknown when it has ended was never
        begun. A lost statement may commit after the first look, so the database is asked again for as long as a lease
        lasts. Money sent under such a claim was begun: the claim came back with a restored database, and runs out, so
        the payment is in doubt.
        """
        context = self._context
        now = context.clock.monotonic()
        if self._until is None or (now < self._look_at and not at_once):
            return
        try:
            leased = await context.store.leases_of(context.worker)
        except TransientFailure:
            context.events.emit("relay.unreachable", during="verb", tries=0)
            self._look_at = context.clock.monotonic() + UNREACHABLE_SECONDS
            return
        unknown = [fence for fence in leased if not self._leases.knows(fence)]
        if self._handing_over:
            await asyncio.wait(list(self._handing_over))
        never_begun = [fence for fence in unknown if not (self._leases.knows(fence) or self._money.has_sent(fence))]
        await self._leases.hand_back_unknown(never_begun)
        self._look_at = now + context.limits.lease_seconds / LOOKS_PER_LEASE
        if now >= self._until:
            self._until = None
