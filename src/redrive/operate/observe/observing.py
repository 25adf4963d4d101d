"""Runs metrics, health and their HTTP server beside a relay, for `redrive relay` and `redrive up`.

The server answers before the relay has reached the database, so that a probe sees why it is not ready.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from uuid import uuid4

from redrive.events import Events
from redrive.message import WorkerId
from redrive.operate.observe.catalogue import Metric
from redrive.operate.observe.health import STALLED_SECONDS, Health
from redrive.operate.observe.metrics import RelayMetrics, exposition
from redrive.operate.observe.reader import EVERY_SECONDS, Reader
from redrive.operate.observe.server import serve
from redrive.settings import Address
from redrive.store.runtime.postgres import PostgresStore

CONNECTIONS = 1


@asynccontextmanager
async def observing(
    events: Events,
    dsn: str,
    address: Address,
    *,
    more: Sequence[Metric] = (),
    every_seconds: float = EVERY_SECONDS,
    stalled_seconds: float = STALLED_SECONDS,
) -> AsyncIterator[Address]:
    """Yields the address it listens on. more: metrics of the systems that the relay includes."""
    async with PostgresStore(dsn, connections=CONNECTIONS, name="redrive metrics") as store:
        reader = Reader(store, WorkerId(uuid4()), events=events, every_seconds=every_seconds, more=more)
        metrics, health = RelayMetrics(reader.reading, more=more), Health(stalled_seconds=stalled_seconds)
        ends = [metrics.subscribe(events), health.subscribe(events)]
        server = await serve(address, expose=partial(exposition, metrics.registry), health=health)
        reading = asyncio.create_task(reader.run())
        try:
            yield Address(*server.sockets[0].getsockname()[:2])
        finally:
            for end in ends:
                end()
            server.close()
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
