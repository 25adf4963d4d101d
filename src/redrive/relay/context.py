"""What all parts of one relay share: store, settings, clock, events, background tasks, three signals."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, TypeVar
from uuid import UUID

from redrive.events import Events
from redrive.message import WorkerId
from redrive.ports import Clock, RelayInfo, Store, TransientFailure
from redrive.relay.tasks import Tasks
from redrive.settings import RelayLimits

UNREACHABLE_SECONDS: Final = 0.5

Result = TypeVar("Result")


@dataclass(kw_only=True, eq=False)
class RelayContext:
    """has_children: suspects run in child processes, so one can take a message that keeps its thread.

    stopping: nothing more is claimed or begun. changed: there may be room, the claimer looks at once. beat_asked: the
    next heartbeat comes at once.
    """

    store: Store
    info: RelayInfo
    limits: RelayLimits
    clock: Clock
    events: Events
    has_children: bool = False
    tasks: Tasks = field(default_factory=Tasks)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    beat_asked: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def worker(self) -> WorkerId:
        return self.info.worker

    @property
    def actor(self) -> str:
        """Who pauses a destination."""
        return f"relay {self.info.name}"

    @property
    def suspects_only(self) -> bool:
        return self.info.suspects_only

    async def step(self, name: str, call: Callable[[], Awaitable[Result]], **values: Any) -> Result:
        """A step that must happen sooner or later, such as handing back a claim."""
        with self.events.step(name, **values):
            return await self.until_reachable(call)

    async def until_reachable(
        self,
        call: Callable[[], Awaitable[Result]],
        *,
        during: str = "verb",
        pauses: Sequence[float] = (UNREACHABLE_SECONDS,),
    ) -> Result:
        """Calls the database again until it can be reached. pauses: seconds, the last one for good."""
        tries = 0
        while True:
            try:
                return await call()
            except TransientFailure:
                self.events.emit("relay.unreachable", during=during, tries=tries)
                await self.clock.sleep(pauses[min(tries, len(pauses) - 1)])
                tries += 1


def new_worker(random: Random) -> WorkerId:
    return WorkerId(UUID(bytes=random.randbytes(16), version=4))
