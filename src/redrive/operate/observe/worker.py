"""Metrics and health of a worker over HTTP, on the paths of a relay's. Values of the database: relays show them."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from redrive.consume.process import WorkerProcess, chosen
from redrive.events import Events
from redrive.settings import Address, Settings


@asynccontextmanager
async def observed_worker(events: Events, process: WorkerProcess, settings: Settings) -> AsyncIterator[None]:
    """Serves while the block runs, if `metrics_listen` says where."""
    address = None if settings.metrics_listen is None else Address.parsed(settings.metrics_listen)
    if address is None:
        yield
        return
    from redrive.operate.observe.catalogue import CONSUMER
    from redrive.operate.observe.metrics import RelayMetrics, exposition
    from redrive.operate.observe.server import serve
    from redrive.operate.observe.worker_health import WorkerHealth

    consumers = chosen(process.app.consumers, process.only)
    timeouts = {name: one.timeout_seconds for name, one in consumers.items()}
    metrics, health = RelayMetrics(moved=CONSUMER), WorkerHealth(timeouts, stalled_seconds=settings.stalled_seconds)
    ends = [metrics.subscribe(events), health.subscribe(events)]
    server = await serve(address, expose=partial(exposition, metrics.registry), health=health)
    logging.getLogger("redrive").info("metrics and health on http://%s", Address(*server.sockets[0].getsockname()[:2]))
    try:
        yield
    finally:
        for end in ends:
            end()
        server.close()
