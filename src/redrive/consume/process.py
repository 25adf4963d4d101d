"""A worker as a process: all consumers of an app, or some of them. Behind `redrive worker`.

SIGTERM and SIGINT stop gracefully; a second one ends at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from redrive.app import App
from redrive.consume.consumer import Consumer
from redrive.consume.receiving import Receiving
from redrive.consume.sessions import HandlerSessions
from redrive.consume.worker import ConsumerWorker
from redrive.errors import NotFound, SettingsError
from redrive.events import Events
from redrive.relay.build import SystemClock
from redrive.relay.process import stop_on_signals

PROGRESS_SECONDS: Final = 10.0


@dataclass(frozen=True, kw_only=True)
class WorkerProcess:
    """only: run just these consumers. stop_seconds: how long a graceful stop waits for running handlers."""

    app: App
    dsn: str
    only: Iterable[str] = ()
    stop_seconds: float = 20.0


async def run_worker(process: WorkerProcess, *, events: Events | None = None, signals: bool = True) -> None:
    """Until SIGTERM, SIGINT or cancellation. Raises NotFound for a consumer that the app does not have."""
    events = events or Events()
    consumers = chosen(process.app.consumers, process.only)
    sessions = {
        name: HandlerSessions(process.dsn, one.handler, name=f"redrive worker {name}")
        for name, one in consumers.items()
    }
    workers = [
        ConsumerWorker(
            one,
            one.open_source(),
            Receiving(one, sessions[name]).receive,
            clock=SystemClock(),
            events=events,
            stop_seconds=process.stop_seconds,
        )
        for name, one in consumers.items()
    ]

    def stop() -> None:
        for worker in workers:
            worker.stop()

    running = [asyncio.create_task(worker.run()) for worker in workers]
    progress = asyncio.create_task(_report(consumers, workers, events))
    if signals:
        stop_on_signals(stop, running)
    try:
        await _until_ended(running, stop)
    finally:
        progress.cancel()
        for one in sessions.values():
            await one.aclose()


def chosen(consumers: Mapping[str, Consumer], only: Iterable[str]) -> dict[str, Consumer]:
    """Those that a worker shall run; all when none is named. An unknown one is refused."""
    wanted = list(only)
    known = ", ".join(sorted(consumers)) or "none"
    for name in wanted:
        if name not in consumers:
            raise NotFound(f"Consumer {name!r} is not declared in this app; it has: {known}.")
    found = {name: consumers[name] for name in wanted} if wanted else dict(consumers)
    if not found:
        raise SettingsError("The app declares no consumer, so a worker would have nothing to do.")
    return found


async def _until_ended(running: list[asyncio.Task[None]], stop: Callable[[], None]) -> None:
    """One that fails stops the others, loudly. A cancellation stops gracefully too."""
    with suppress(asyncio.CancelledError):
        await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    stop()
    await asyncio.wait(running)
    for task in running:
        if not task.cancelled():
            task.result()


async def _report(consumers: Mapping[str, Consumer], workers: list[ConsumerWorker], events: Events) -> None:
    while True:
        await asyncio.sleep(PROGRESS_SECONDS)
        for name, worker in zip(consumers, workers, strict=True):
            events.emit(
                "consumer.progress", consumer=name, in_hand=worker.in_hand, oldest_seconds=worker.oldest_seconds
            )
