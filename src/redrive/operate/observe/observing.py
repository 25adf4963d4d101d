"""Metrics and health over HTTP beside a relay or a worker, if `metrics_listen` says where.

The server answers before the relay has reached the database, so that a probe sees why it is not ready.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from uuid import uuid4

from redrive.consume.process import WorkerProcess, chosen
from redrive.events import Events
from redrive.message import WorkerId
from redrive.operate.observe.catalogue import CONSUMER, Metric
from redrive.operate.observe.health import STALLED_SECONDS, Health
from redrive.operate.observe.metrics import RelayMetrics, exposition
from redrive.operate.observe.reader import EVERY_SECONDS, Reader
from redrive.operate.observe.server import serve
from redrive.operate.observe.worker_health import WorkerHealth
from redrive.relay.process import RelayProcess
from redrive.settings import Address, Settings
from redrive.store.runtime.postgres import PostgresStore

CONNECTIONS = 1
_LOGGER = logging.getLogger("redrive")


@asynccontextmanager
async def observed(events: Events, process: RelayProcess, settings: Settings) -> AsyncIterator[None]:
    """Logs advice on the settings, too."""
    for advice in settings.advice():
        _LOGGER.warning(advice)
    if (address := _address(settings)) is None:
        yield
        return
    async with observing(
        events,
        process.dsn,
        address,
        more=[metric for system in process.app.systems.values() for metric in system.metrics.values()],
        every_seconds=settings.metrics_every_seconds,
        stalled_seconds=settings.stalled_seconds,
    ):
        yield


@asynccontextmanager
async def observed_worker(events: Events, process: WorkerProcess, settings: Settings) -> AsyncIterator[None]:
    """Without values of the database, which relays show."""
    if (address := _address(settings)) is None:
        yield
        return
    timeouts = {name: one.timeout_seconds for name, one in chosen(process.app.consumers, process.only).items()}
    health = WorkerHealth(timeouts, stalled_seconds=settings.stalled_seconds)
    async with _served(events, address, RelayMetrics(moved=CONSUMER), health):
        yield


def _address(settings: Settings) -> Address | None:
    return None if settings.metrics_listen is None else Address.parsed(settings.metrics_listen)


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
        async with _served(events, address, metrics, health) as listening:
            reading = asyncio.create_task(reader.run())
            try:
                yield listening
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)


@asynccontextmanager
async def _served(events: Events, address: Address, metrics: RelayMetrics, health: Health) -> AsyncIterator[Address]:
    ends = [metrics.subscribe(events), health.subscribe(events)]
    server = await serve(address, expose=partial(exposition, metrics.registry), health=health)
    listening = Address(*server.sockets[0].getsockname()[:2])
    _LOGGER.info("metrics and health on http://%s", listening)
    try:
        yield listening
    finally:
        for end in ends:
            end()
        server.close()
