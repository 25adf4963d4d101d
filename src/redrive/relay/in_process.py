"""A relay inside another program while a block runs: `App.running`."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from redrive.events import Events
from redrive.relay.process import RelayProcess, run_relay


@asynccontextmanager
async def running(
    process: RelayProcess, *, events: Events, beside: AbstractAsyncContextManager[None]
) -> AsyncIterator[None]:
    """The block begins when the relay does; at its end the relay stops gracefully. beside: entered before it.

    A relay that fails ends the block with its error, so that the program does not go on without it.
    """
    async with beside, _relay(process, events=events):
        yield


@asynccontextmanager
async def _relay(process: RelayProcess, *, events: Events) -> AsyncIterator[None]:
    has_started = asyncio.Event()
    end_listening = events.subscribe(lambda *_: has_started.set(), "relay.started")
    relay = asyncio.create_task(run_relay(process, events=events, signals=False))
    try:
        await _first(has_started, relay)
        block = asyncio.current_task()
        assert block is not None
        relay.add_done_callback(_cancelling(block))
        try:
            yield
        except asyncio.CancelledError:
            if _has_failed(relay):
                block.uncancel()
                relay.result()
            raise
    finally:
        end_listening()
        await _stopped(relay)


async def _first(has_started: asyncio.Event, relay: asyncio.Task[None]) -> None:
    waiting = asyncio.create_task(has_started.wait())
    try:
        await asyncio.wait([waiting, relay], return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    if relay.done():
        relay.result()


async def _stopped(relay: asyncio.Task[None]) -> None:
    """What it failed with has been raised, or is about to be."""
    relay.cancel()
    await asyncio.wait([relay])
    if not relay.cancelled():
        relay.exception()


def _cancelling(block: asyncio.Task[Any]) -> Callable[[asyncio.Task[None]], None]:
    def cancel(relay: asyncio.Task[None]) -> None:
        if _has_failed(relay):
            block.cancel()

    return cancel


def _has_failed(relay: asyncio.Task[None]) -> bool:
    return relay.done() and not relay.cancelled() and relay.exception() is not None
