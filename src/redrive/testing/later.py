"""Time for a drain: what really passes, and what a `ManualClock` was advanced on top.

`Later` is the relay's own clock, and knows the database's time; `LaterStore` tells every verb that it is that late
(`p_now`). So a retry that is due tomorrow is due as soon as the clock was advanced by a day, while the polls
of the relay go on in real time.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from datetime import datetime, timedelta
from typing import Any

from redrive.store.runtime.one_connection import StoreOnConnection
from redrive.testing.clock import ManualClock


class Later:
    """A `redrive.ports.Clock`: real seconds and those that were advanced.

    set_out_at: the database's time, at first. asked_at: on the monotonic clock, from before it was asked for. So it is
    never earlier than the database's own clock, by which something may be enqueued meanwhile that is due now.
    """

    def __init__(self, clock: ManualClock, set_out_at: datetime, *, asked_at: float) -> None:
        self._clock = clock
        self._set_out_at = set_out_at
        self._began = asked_at

    def monotonic(self) -> float:
        return time.monotonic() + self._clock.advanced_seconds

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def now(self) -> datetime:
        return self._set_out_at + timedelta(seconds=self.monotonic() - self._began)


class LaterStore:
    """A store, each verb of which is told the time."""

    def __init__(self, store: StoreOnConnection, later: Later) -> None:
        self._store = store
        self._later = later

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)
        if "now" not in inspect.signature(verb).parameters:
            return verb
        return lambda *values, **options: verb(*values, **{"now": self._later.now(), **options})
