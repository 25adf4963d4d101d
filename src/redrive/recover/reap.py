"""reap: claims whose worker is gone come back pending, in doubt, each a suspect (G-14, G-18). SQL: verbs/reap.sql."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime

from redrive.events import Events
from redrive.ports import Reaped, Store

BATCH = 500


async def reap(
    store: Store,
    *,
    batch: int = BATCH,
    expected: Callable[[], Awaitable[datetime]] | None = None,
    events: Events | None = None,
) -> Reaped:
    """All of them, a batch at a time: one batch is one short transaction.

    expected: what the database's clock says by the relay's reckoning; waits until the relay has one.
    """
    events = events or Events()
    requeued = 0
    while True:
        with events.step("reap") as added:
            reaped = await store.reap(limit=batch, expected=None if expected is None else await expected())
            added["requeued"] = reaped.requeued
        if reaped.unconfirmed:
            return reaped
        requeued += reaped.requeued
        if reaped.requeued < batch:
            return Reaped(requeued)
