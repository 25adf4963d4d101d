"""Partitions: made ahead of time, and retired when their retention is over. SQL: verbs/partitions.sql.

A range with anything open in it stays, and is tried again the next time; the ranges after it are not held up by it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta

from redrive.events import Events
from redrive.ports import Store

DAY_SECONDS = 86_400


async def make_partitions(store: Store, *, days: float, ahead: int, events: Events | None = None) -> int:
    with (events or Events()).step("make_partitions"):
        return await store.make_partitions(width_seconds=days * DAY_SECONDS, ahead=ahead)


async def retire(
    store: Store, *, retention_days: float, now: datetime, events: Events | None = None
) -> Mapping[str, int]:
    """Counts by result: retired, open, young. `now` is the database's."""
    before = now - timedelta(days=retention_days)
    with (events or Events()).step("retire"):
        results = [await store.retire(start) for start, end in await store.ranges() if end <= before]
    return Counter(results)
