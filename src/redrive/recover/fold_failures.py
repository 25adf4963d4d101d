"""fold_failures: what was parked since the last time is counted into its failure groups. SQL: verbs/groups.sql."""

from __future__ import annotations

from redrive.events import Events
from redrive.ports import Store

BATCH = 5000


async def fold_failures(store: Store, *, batch: int = BATCH, events: Events | None = None) -> str:
    """All of them, a batch at a time: one batch is one short transaction."""
    events = events or Events()
    counted = 0
    while True:
        with events.step("fold_failures") as added:
            added["count"] = count = await store.fold_failures(limit=batch)
        counted += count
        if count < batch:
            return f"{counted} counted"
