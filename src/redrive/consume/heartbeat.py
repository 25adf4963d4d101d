"""Registers a worker and reports how far its consumers are, every `heartbeat_seconds`.

So an idle worker notices too that PostgreSQL is away. A heartbeat that fails stops no consumer: it is tried again.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from redrive import redact
from redrive.consume.progress import Progress, WorkerProgress
from redrive.events import Events
from redrive.ports import Clock, TransientFailure
from redrive.ports.workers import ConsumerReport, WorkerInfo, WorkerVerbs

DEREGISTER_SECONDS: Final = 2.0


class WorkerHeartbeat:
    """oldest: for how long the oldest message of each consumer is in hand."""

    def __init__(
        self,
        store: WorkerVerbs,
        info: WorkerInfo,
        progress: WorkerProgress,
        oldest: Mapping[str, Callable[[], float]],
        *,
        every_seconds: float,
        clock: Clock,
        events: Events,
    ) -> None:
        self._store, self._info, self._progress, self._oldest = store, info, progress, oldest
        self._every_seconds, self._clock, self._events = every_seconds, clock, events

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await self.beat()
            await self._clock.sleep(self._every_seconds)

    async def beat(self) -> None:
        worker, reports = self._info.worker, [self._report(name, one) for name, one in self._progress.of.items()]
        try:
            await self._store.heartbeat_worker(self._info, reports)
        except Exception as error:  # also a login that may not: consumers work on, and the worker is not ready
            cause = error.__cause__ if isinstance(error, TransientFailure) else None
            self._events.emit("worker.unreachable", worker=worker, error=redact.error_type(cause or error))
        else:
            self._events.emit("worker.seen", worker=worker)

    async def deregister(self) -> None:
        """A row that stays is shown as that of a lost worker, and forgotten after a day."""
        with suppress(Exception):
            async with asyncio.timeout(DEREGISTER_SECONDS):
                await self._store.deregister_worker(self._info.worker)

    def _report(self, name: str, progress: Progress) -> ConsumerReport:
        ended = progress.ended_at
        return ConsumerReport(
            name=name,
            is_connected=progress.is_connected,
            in_hand=progress.in_hand,
            oldest_seconds=self._oldest[name](),
            ended_seconds=None if ended is None else self._clock.monotonic() - ended,
            received=progress.counts["received"],
            processed=progress.counts["processed"],
            deferred=progress.counts["deferred"],
            seen=progress.counts["seen"],
            given_back=progress.counts["given_back"],
        )
