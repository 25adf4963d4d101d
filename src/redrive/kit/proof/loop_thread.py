"""An event loop in a thread of its own, for the proxies of proofs whose campaigns are plain functions."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, TypeVar

T = TypeVar("T")
JOIN_SECONDS = 5.0


class LoopThread:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """In the loop; returns when it has ended."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


@contextmanager
def loop_thread(beside: AbstractAsyncContextManager[Any]) -> Iterator[LoopThread]:
    """beside: is entered first, and left before the loop ends."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    running = LoopThread(loop)

    async def enter() -> None:
        await beside.__aenter__()

    async def leave() -> None:
        await beside.__aexit__(None, None, None)

    try:
        running.run(enter())
        try:
            yield running
        finally:
            running.run(leave())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(JOIN_SECONDS)
        loop.close()
