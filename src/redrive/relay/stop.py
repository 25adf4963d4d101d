"""A graceful stop: claim nothing more, hand back what has not begun, let the rest end, write every outcome (G-09)."""

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from redrive.ports import TransientFailure
from redrive.relay.claiming.leases import Leases
from redrive.relay.claiming.lost_replies import LostReplies
from redrive.relay.context import RelayContext
from redrive.relay.dispatching.deadlines import Deadlines
from redrive.relay.dispatching.queues import DestinationQueues
from redrive.relay.heartbeat import Heartbeat
from redrive.relay.settling.settle import Settler

STOP_SECONDS_MIN = 1.0  # even a stop that waits for nothing writes what it knows


@dataclass(eq=False)
class Stop:
    context: RelayContext
    queues: DestinationQueues
    leases: Leases
    deadlines: Deadlines
    settler: Settler
    lost_replies: LostReplies
    heartbeat: Heartbeat

    async def run(self, claiming: asyncio.Task[None]) -> None:
        self.context.stopping.set()
        stop_seconds = self.context.limits.stop_seconds
        await asyncio.wait([claiming], timeout=max(stop_seconds, STOP_SECONDS_MIN))
        deadline = self.context.clock.monotonic() + stop_seconds
        await self._within(deadline, self._hand_back_waiting())
        await self.deadlines.end_slots(deadline)
        await self._within(deadline, self.settler.flushed())
        await self._within(deadline, self.settler.leave())
        await self._within(deadline, self._hand_back_waiting())  # what a settle that was under way has handed over
        await self._within(deadline, self.lost_replies.hand_back(at_once=True))
        await self._within(deadline, self.leases.all_back())
        await self._within(deadline, self.heartbeat.deregister())

    async def _hand_back_waiting(self) -> None:
        await self.leases.hand_back(self.queues.take_waiting())

    async def _within(self, deadline: float, work: Awaitable[Any]) -> None:
        """A stop must end, even while the database is away; the reaper heals what is left."""
        seconds = max(deadline - self.context.clock.monotonic(), STOP_SECONDS_MIN)
        with suppress(TimeoutError, TransientFailure):
            await asyncio.wait_for(work, seconds)
