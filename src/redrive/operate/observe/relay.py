"""What the settings of a relay ask for beside it: metrics and health over HTTP, and advice in the log.

For `redrive relay`, `redrive up` and `App.running`. The library that metrics need is imported only where
`metrics_listen` is set.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from redrive.events import Events
from redrive.relay.process import RelayProcess
from redrive.settings import Address, Settings


@asynccontextmanager
async def observed(events: Events, process: RelayProcess, settings: Settings) -> AsyncIterator[None]:
    """Logs advice on the settings; serves metrics and health while the block runs, if they say where."""
    logger = logging.getLogger("redrive")
    for advice in settings.advice():
        logger.warning(advice)
    address = None if settings.metrics_listen is None else Address.parsed(settings.metrics_listen)
    if address is None:
        yield
        return
    from redrive.operate.observe.observing import observing

    async with observing(
        events,
        process.dsn,
        address,
        more=[metric for system in process.app.systems.values() for metric in system.metrics.values()],
        every_seconds=settings.metrics_every_seconds,
        stalled_seconds=settings.stalled_seconds,
    ) as listening:
        logger.info("metrics and health on http://%s", listening)
        yield
