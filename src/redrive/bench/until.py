"""Work that goes on until an event is set. What ends before that has failed, and says so instead of giving figures."""

from __future__ import annotations

import asyncio
from typing import Any


async def until(ended: asyncio.Event, work: asyncio.Task[Any]) -> None:
    """Returns when the event is set and the work was stopped; raises what ended the work before that."""
    await asyncio.wait([work, asyncio.create_task(ended.wait())], return_when=asyncio.FIRST_COMPLETED)
    if not ended.is_set():
        work.result()
        raise RuntimeError("It ended before all was done.")
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
