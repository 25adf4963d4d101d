"""mend_lanes: looks for ordering keys that no claim would look at again. SQL: verbs/lanes.sql.

There should be none (store/sql/LANES.md says why). One that is found is a bug of Redrive: it is healed, counted and
reported as an event.
"""

from __future__ import annotations

from typing import Final

from redrive.events import Events
from redrive.ports import Store

LANES_AT_ONCE: Final = 2_000
SLICES_MAX: Final = 50


async def mend_lanes(
    store: Store, *, lanes: int = LANES_AT_ONCE, slices: int = SLICES_MAX, events: Events | None = None
) -> str:
    """As many lanes as one run may look at, a slice at a time: one slice is one short transaction.

    The next run goes on where this one ends, so that all lanes are looked at within lanes / (2,000 * 50) runs.
    """
    events = events or Events()
    mended = looked_at = 0
    is_over = False
    for _ in range(slices):
        with events.step("mend_lanes") as added:
            one = await store.mend_lanes(lanes=lanes)
            added["count"] = one.mended
        mended += one.mended
        looked_at += one.looked_at
        is_over = one.is_over
        if is_over:
            break
    if mended:
        events.emit("lanes.mended", count=mended)
    return f"{mended} mended" if is_over else f"{mended} mended; {looked_at} lanes looked at, the next run goes on"
