"""A relay as a process: store, loop, duties, suspects, signals. Behind `redrive relay`, `redrive up` and the demo.

SIGTERM and SIGINT stop gracefully; a second one ends at once.
"""

import asyncio
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import SystemRandom
from typing import Any, NoReturn, Self

import redrive
from redrive.app import App, Destination
from redrive.errors import SettingsError
from redrive.events import Events
from redrive.message import WorkerId
from redrive.recover.duties import run_duties
from redrive.recover.engine_duties import engine_duties
from redrive.relay.build import SystemClock, build_relay, clock_watch
from redrive.relay.clock_watch import ClockWatch
from redrive.relay.context import new_worker
from redrive.relay.crash.child_process import child, in_this_process, turn_seconds
from redrive.relay.crash.suspects import Suspects
from redrive.relay.dispatching.requests import Requests
from redrive.relay.preflight import check_database
from redrive.relay.settling.record import WAIT_SECONDS
from redrive.relay.tasks import end
from redrive.settings import RelayLimits, Settings
from redrive.store.runtime.postgres import PostgresStore

# Claim, settle, hand back, renew and heartbeat at once, and eight records beside them; and at most sixteen that wait
# for a transaction of an application.
CONNECTIONS = 34
STORE_SECONDS = 30.0  # for one verb; a `record` may take its own time inside one


@dataclass(frozen=True, kw_only=True)
class RelayProcess:
    """app_spec: `module:name` of the app, so that a child process can run suspects; None = they run in this one.

    listen: whether it hears the doorbell; listen_dsn: where, if `dsn` leads to a pooler. allow_asynchronous_commit:
    money is moved even where a crash of the database can lose commits. state_directory: where it remembers sent money
    over restarts; None = only while it runs (`witness.py`). only: just these destinations. name: shown in `status`.
    suspect_module: what `python -m` runs as that child.
    """

    app: App
    dsn: str
    limits: RelayLimits = field(default_factory=RelayLimits)
    app_spec: str | None = None
    only: Sequence[str] = ()
    name: str = ""
    listen: bool = True
    listen_dsn: str | None = None
    partition_days: float = 7.0
    partitions_ahead: int = 4
    retention_days: float | None = None
    inbox_retention_days: float | None = 30.0
    allow_asynchronous_commit: bool = False
    state_directory: Path | None = None
    suspect_module: str = "redrive.relay.crash.suspect_child"

    @classmethod
    def of(
        cls,
        settings: Settings,
        *,
        app: App,
        dsn: str,
        app_spec: str | None = None,
        only: Sequence[str] = (),
        name: str = "",
    ) -> Self:
        settings = settings.with_defaults(relay_defaults(app), origin="a system")
        return cls(
            app=app,
            dsn=dsn,
            limits=settings,
            app_spec=app_spec,
            only=only,
            name=name,
            listen=settings.wakeup == "notify",
            listen_dsn=settings.listen_dsn,
            partition_days=settings.partition_days,
            partitions_ahead=settings.partitions_ahead,
            retention_days=settings.retention_days,
            inbox_retention_days=settings.inbox_retention_days,
            allow_asynchronous_commit=settings.asynchronous_commit == "warn",
            state_directory=settings.relay_state_directory,
        )


def relay_defaults(app: App) -> dict[str, float]:
    """What the app's systems want of its relays: of each setting the shortest time, or the largest number."""
    asked: dict[str, list[float]] = {}
    for system in app.systems.values():
        for name, value in system.relay_settings.items():
            asked.setdefault(name, []).append(value)
    return {name: (min if name.endswith("_seconds") else max)(values) for name, values in asked.items()}


async def run_relay(process: RelayProcess, *, events: Events | None = None, signals: bool = True) -> None:
    """Until SIGTERM, SIGINT or cancellation, which stops gracefully too.

    Raises SchemaError on a database of another version, NotFound for a destination that the app does not have,
    SettingsError where money would be moved without synchronous commits, or at another address while some is in doubt.
    """
    events = events or Events()
    clock, random = SystemClock(), SystemRandom()
    destinations = _destinations(process)
    worker = new_worker(random)
    for system in process.app.systems.values():
        if system.observe is not None:
            system.observe(events)
    async with _store(process, f"redrive relay {process.name}".strip()) as store:
        await check_database(process, store, destinations, events=events)
        store.count_leases_from_now()
        watch = clock_watch(process, store, worker, events=events)
        relay = build_relay(process, store, destinations, worker, random=random, events=events, watch=watch)
        run = (
            child(process, events) if process.app_spec else in_this_process(process, store, destinations, events=events)
        )
        turns = turn_seconds(destinations, process.limits)
        suspects = Suspects(store, turns, run, clock=clock, random=random, events=events)
        duties = [*_engine_duties(process, watch, events), *process.app.duties.values()]
        suspects_run = asyncio.create_task(suspects.run())
        requests = Requests(store, destinations, worker, clock=clock, random=random, events=events)
        asked = asyncio.create_task(requests.run())
        upkeep = asyncio.create_task(run_duties(store, duties, worker=worker, clock=clock, events=events))
        running = asyncio.create_task(relay.run())

        def stop() -> None:
            relay.stop()
            if not suspects_run.cancelling():  # once: its child stops gracefully too, and a second time would kill it
                suspects_run.cancel()

        if signals:
            stop_on_signals(stop, [running, suspects_run])
        try:
            await _until_ended(stop, running, [suspects_run, upkeep, asked])
        finally:
            stop()
            await end([upkeep, asked])
            await asyncio.gather(suspects_run, return_exceptions=True)
            await _close(destinations)


async def run_suspects(process: RelayProcess, worker: WorkerId, *, events: Events | None = None) -> None:
    """In the child: one at a time under this worker id, until none is left or its turn is over."""
    events = events or Events()
    destinations = _destinations(process)
    async with _store(process, "redrive suspects") as store:
        relay = build_relay(
            process, store, destinations, worker, random=SystemRandom(), events=events, suspects_only=True
        )
        running = asyncio.create_task(relay.run())
        stop_on_signals(relay.stop, [running])
        await running
    await _close(destinations)


async def _close(destinations: Mapping[str, Destination]) -> None:
    """Connections and sessions that a transport keeps open."""
    for destination in destinations.values():
        close = getattr(destination.transport, "aclose", None)
        if close is not None:
            await close()


def run_to_exit(main: Coroutine[Any, Any, None]) -> NoReturn:
    """Ends the process when it returns. Handlers stuck in a thread or ignoring their cancellation were settled as
    Unknown, and must not keep the process alive."""
    code = 0
    try:
        asyncio.new_event_loop().run_until_complete(main)
    except BaseException:  # cancelled by a second signal too: the process ends all the same
        traceback.print_exc()
        code = 1
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _store(process: RelayProcess, name: str) -> PostgresStore:
    seconds = max(STORE_SECONDS, WAIT_SECONDS + process.limits.record_timeout_seconds + 5)
    return PostgresStore(process.dsn, connections=CONNECTIONS, name=name, timeout_seconds=seconds)


def _destinations(process: RelayProcess) -> dict[str, Destination]:
    destinations = process.app.only(process.only)
    if not destinations:
        raise SettingsError("The app declares no destination, so a relay would have nothing to do.")
    for destination in destinations.values():
        use_database = getattr(destination.transport, "use_database", None)
        if use_database is not None:
            use_database(process.dsn)
    return destinations


def _engine_duties(process: RelayProcess, watch: ClockWatch, events: Events) -> list[redrive.app.Duty]:
    return engine_duties(
        reap_every_seconds=process.limits.reap_every_seconds,
        partition_days=process.partition_days,
        partitions_ahead=process.partitions_ahead,
        retention_days=process.retention_days,
        inbox_retention_days=process.inbox_retention_days,
        expected_time=watch.expected_time,
        events=events,
    )


def stop_on_signals(stop: Callable[[], None], tasks: Sequence[asyncio.Task[None]]) -> None:
    """The first signal stops, the second ends."""
    loop = asyncio.get_running_loop()

    def end() -> None:
        for task in tasks:
            task.cancel()

    def first(number: signal.Signals) -> None:
        stop()
        loop.add_signal_handler(number, end)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, first, number)


async def _until_ended(
    stop: Callable[[], None], running: asyncio.Task[None], beside: Sequence[asyncio.Task[None]]
) -> None:
    """Whatever fails beside the path stops the relay, loudly: without a reaper or suspects it would only seem well."""
    try:
        await asyncio.wait([running, *beside], return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        stop()
    else:
        if not running.done():
            stop()
    with suppress(asyncio.CancelledError):
        await running
    for task in beside:
        if task.done() and not task.cancelled():
            task.result()
