"""Time for a drain: what really passes, and what a `ManualClock` was advanced on top.

`Later` is the relay's clock; `LaterStore` tells every verb that it is that late (`p_now`). So a retry of tomorrow
is due when the clock was advanced by a day, while the relay's polls go on in real time.
"""

import asyncio
import inspect
import time
from datetime import datetime, timedelta
from typing import Any

from redrive.store.runtime.one_connection import StoreOnConnection
from redrive.testing.clock import ManualClock


class Later:
    """set_out_at: the database's time, at first. asked_at: monotonic, from before that was asked for, so that it is
    never earlier than the database's clock, by which something may be enqueued that is due now."""

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
    """A store whose verbs are told the time."""

    def __init__(self, store: StoreOnConnection, later: Later) -> None:
        self._store = store
        self._later = later

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)
        if "now" not in inspect.signature(verb).parameters:
            return verb
        return lambda *values, **options: verb(*values, **{"now": self._later.now(), **options})
