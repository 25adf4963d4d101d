"""expire: pending messages whose time has passed are closed, also where nothing claims them. SQL: verbs/expire.sql."""

from __future__ import annotations

from redrive.events import Events
from redrive.ports import Store

BATCH = 500


async def expire(store: Store, *, batch: int = BATCH, events: Events | None = None) -> int:
    """All of them, a batch at a time: one batch is one short transaction."""
    events = events or Events()
    expired = 0
    while True:
        with events.step("expire") as added:
            added["count"] = count = await store.expire(limit=batch)
        expired += count
        if count < batch:
            return expired
