"""Tasks whose failure is the relay's: a claim without a task must not be renewed for ever."""

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any


class Tasks:
    """`watching` raises what the first failed task has raised."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self._failed = asyncio.Event()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    async def watching(self) -> None:
        await self._failed.wait()
        assert self._failure is not None
        raise self._failure

    def cancel(self) -> None:
        for task in tuple(self._running):
            task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._failure = self._failure or task.exception()
            self._failed.set()


async def until_set(event: asyncio.Event, seconds: float) -> None:
    """At most so long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


async def end(tasks: Sequence[asyncio.Future[Any]]) -> None:
    """Cancel them and wait until they are over."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
