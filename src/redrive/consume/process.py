"""A worker as a process: all consumers of an app, or some of them, and its heartbeat. Behind `redrive worker`.

SIGTERM and SIGINT stop gracefully; a second one ends at once.
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from random import SystemRandom
from typing import Final

import redrive
from redrive.app import App
from redrive.consume.consumer import Consumer
from redrive.consume.heartbeat import WorkerHeartbeat
from redrive.consume.progress import WorkerProgress
from redrive.consume.receiving import Receiving
from redrive.consume.sessions import HandlerSessions
from redrive.consume.worker import ConsumerWorker
from redrive.errors import NotFound, SettingsError
from redrive.events import Events
from redrive.ports.workers import WorkerInfo
from redrive.relay.build import SystemClock
from redrive.relay.context import new_worker
from redrive.relay.process import stop_on_signals
from redrive.relay.tasks import end
from redrive.store.runtime.postgres import PostgresStore

PROGRESS_SECONDS: Final = 10.0
STORE_SECONDS: Final = 10.0  # for one heartbeat


@dataclass(frozen=True, kw_only=True)
class WorkerProcess:
    """only: run just these consumers. stop_seconds: how long a graceful stop waits for running handlers.

    name: shown in `status`; empty = host and process id. heartbeat_seconds: how often it reports how far it is.
    """

    app: App
    dsn: str
    only: Iterable[str] = ()
    stop_seconds: float = 20.0
    name: str = ""
    heartbeat_seconds: float = 5.0


async def run_worker(process: WorkerProcess, *, events: Events | None = None, signals: bool = True) -> None:
    """Until SIGTERM, SIGINT or cancellation. Raises NotFound for a consumer that the app does not have."""
    events = events or Events()
    consumers = chosen(process.app.consumers, process.only)
    sessions = {
        name: HandlerSessions(process.dsn, one.handler, name=f"redrive worker {name}")
        for name, one in consumers.items()
    }
    workers = {
        name: ConsumerWorker(
            one,
            one.open_source(),
            Receiving(one, sessions[name]).receive,
            clock=SystemClock(),
            events=events,
            stop_seconds=process.stop_seconds,
        )
        for name, one in consumers.items()
    }

    def stop() -> None:
        for worker in workers.values():
            worker.stop()

    async with _heartbeat(process, workers, events):
        running = [asyncio.create_task(worker.run()) for worker in workers.values()]
        progress = asyncio.create_task(_report(workers, events))
        if signals:
            stop_on_signals(stop, running)
        try:
            await _until_ended(running, stop)
        finally:
            await end([progress])
            for one in sessions.values():
                await one.aclose()


@asynccontextmanager
async def _heartbeat(
    process: WorkerProcess, workers: Mapping[str, ConsumerWorker], events: Events
) -> AsyncIterator[None]:
    """While the block runs the worker is registered."""
    info = _info(process)
    progress = WorkerProgress(workers)
    unsubscribe = progress.subscribe(events)
    oldest = {name: partial(getattr, one, "oldest_seconds") for name, one in workers.items()}
    events.emit("worker.started", worker=info.worker, consumers=list(workers))
    async with PostgresStore(process.dsn, connections=1, name="redrive worker", timeout_seconds=STORE_SECONDS) as store:
        heartbeat = WorkerHeartbeat(
            store, info, progress, oldest, every_seconds=process.heartbeat_seconds, clock=SystemClock(), events=events
        )
        beating = asyncio.create_task(heartbeat.run())
        try:
            yield
        finally:
            await end([beating])
            await heartbeat.deregister()
            unsubscribe()
            events.emit("worker.stopped", worker=info.worker)


def _info(process: WorkerProcess) -> WorkerInfo:
    host, pid = socket.gethostname(), os.getpid()
    return WorkerInfo(new_worker(SystemRandom()), process.name or f"{host}:{pid}", host, pid, redrive.__version__)


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


async def _report(workers: Mapping[str, ConsumerWorker], events: Events) -> None:
    while True:
        for name, worker in workers.items():
            events.emit(
                "consumer.progress", consumer=name, in_hand=worker.in_hand, oldest_seconds=worker.oldest_seconds
            )
        await asyncio.sleep(PROGRESS_SECONDS)
