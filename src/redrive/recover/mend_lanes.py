"""mend_lanes: ordering keys that nobody would look at again are looked at. SQL: verbs/lanes.sql.

There are none (store/sql/LANES.md says why). One that is found all the same is a bug of ours: it is healed, counted for
good, and said out loud.
"""

from __future__ import annotations

from redrive.events import Events
from redrive.ports import Store

BATCH = 1000


async def mend_lanes(store: Store, *, batch: int = BATCH, events: Events | None = None) -> str:
    """All of them, a batch at a time: one batch is one short transaction."""
    events = events or Events()
    mended = 0
    while True:
        with events.step("mend_lanes") as added:
            added["count"] = count = await store.mend_lanes(limit=batch)
        mended += count
        if count < batch:
            break
    if mended:
        events.emit("lanes.mended", count=mended)
    return f"{mended} mended"
