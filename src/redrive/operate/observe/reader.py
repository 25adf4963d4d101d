"""Reads the metrics of the database, by one relay at a time (G-17, G-20): the one that holds the duty `gauges`.

Values are shown only while it could hold the duty, so that two relays never show the same value. A database that does
not answer stops no relay.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

from redrive import redact
from redrive.events import Events
from redrive.message import WorkerId
from redrive.operate.observe.catalogue import Metric
from redrive.operate.observe.metrics import Reading
from redrive.ports import TransientFailure, duty_hold_seconds
from redrive.store.reads.gauges import DUTY, Gauge, hold_duty, read_gauges
from redrive.store.runtime.postgres import PostgresStore

EVERY_SECONDS: Final = 15.0
LET_GO_SECONDS: Final = 2.0


@dataclass(eq=False)
class Reader:
    """more: metrics of systems; some are queries."""

    store: PostgresStore
    worker: WorkerId
    _: KW_ONLY
    events: Events
    every_seconds: float = EVERY_SECONDS
    more: Sequence[Metric] = ()
    monotonic: Callable[[], float] = time.monotonic
    _shown: Reading = field(default=Reading(), init=False)
    _shown_until: float = field(default=0.0, init=False)

    def reading(self) -> Reading:
        return self._shown if self.monotonic() < self._shown_until else Reading()

    async def run(self) -> None:
        try:
            while True:
                await self._tried()
                await asyncio.sleep(self.every_seconds)
        finally:
            self._shown_until = 0.0
            with suppress(TransientFailure, TimeoutError):
                async with asyncio.timeout(LET_GO_SECONDS):
                    await self.store.end_duty(DUTY, self.worker, result="let go")

    async def _tried(self) -> None:
        """A login that may not read stops no relay."""
        try:
            await self.read_once()
        except TransientFailure:
            pass
        except Exception as error:
            self.events.emit("duty.failed", duty=DUTY, error=redact.error_type(error))

    async def read_once(self) -> bool:
        """True if this relay holds the duty and has read."""
        asked_at = self.monotonic()
        if not await hold_duty(self.store, DUTY, self.worker, every_seconds=self.every_seconds):
            self._shown_until = 0.0
            return False
        gauges = await read_gauges(self.store)
        for metric in self.more:
            if metric.gauge and metric.query:
                gauges += [Gauge(metric.gauge, *row) for row in await self.store.rows(metric.query, [])]
        self._shown = Reading(gauges, at=time.time(), is_reader=True)
        self._shown_until = asked_at + duty_hold_seconds(self.every_seconds)
        return True
