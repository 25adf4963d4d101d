"""vacuum: the tables that turn over are vacuumed where autovacuum looks too seldom. See store/runtime/vacuum.py."""

from __future__ import annotations

from redrive.events import Events
from redrive.ports import Store


async def vacuum(store: Store, *, events: Events | None = None) -> str:
    with (events or Events()).step("vacuum") as added:
        added["result"] = result = await store.vacuum()
    return result
