"""A relay as a process: store, loop, duties, suspects, signals. Behind `redrive relay`, `redrive up` and the demo.

Here, at the edge, the real clock and real randomness come in; everything below takes them as arguments. SIGTERM and
SIGINT stop gracefully; a second one ends at once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Any, NoReturn, Self
from uuid import UUID

import redrive
from redrive.app import App, Destination
from redrive.errors import SettingsError
from redrive.events import Events
from redrive.message import WorkerId
from redrive.ports import RelayInfo, TransientFailure
from redrive.recover.duties import engine_duties, run_duties
from redrive.relay.claiming.claimer import TURN_SECONDS
from redrive.relay.clock_watch import ClockWatch
from redrive.relay.context import new_worker
from redrive.relay.crash.child_events import HEARD_SECONDS, STARTED, WAITING, hear
from redrive.relay.crash.suspects import Suspects
from redrive.relay.crash.witness import Witness
from redrive.relay.dispatching.deadlines import ABANDON_SECONDS
from redrive.relay.dispatching.destination_queue import DISPATCH_STEPS
from redrive.relay.dispatching.requests import Requests
from redrive.relay.loop import Relay
from redrive.relay.settling.settle import WAIT_SECONDS
from redrive.relay.tasks import end
from redrive.relay.until_reachable import UNREACHABLE_SECONDS
from redrive.relay.wakeup.listening import OpenListenConnection
from redrive.settings import RelayLimits, Settings
from redrive.store.migrations.files import MigrationSet
from redrive.store.runtime import listen_connection
from redrive.store.runtime.open_store import require_schema
from redrive.store.runtime.postgres import PostgresStore

if TYPE_CHECKING:
    from redrive.relay.crash.suspects import RunAlone

# Claim, settle, hand back, renew and heartbeat at once, and four records beside them; and at most eight that wait for a
# transaction of an application.
CONNECTIONS = 20
CHILD_END_SECONDS = 5.0  # on top of its graceful stop
CHILD_NOT_STARTED = 127  # as a shell says it
CONFIRM_SHARE = 0.9  # of a heartbeat: the second look comes one heartbeat after the first, or a little sooner
STORE_SECONDS = 30.0  # for one verb; a `record` may take its own time inside one


class SystemClock:
    """The real clock."""

    monotonic = staticmethod(time.monotonic)

    @staticmethod
    def elapsed() -> float:
        """Goes on while the machine is suspended, where the system has such a clock."""
        return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@dataclass(frozen=True, kw_only=True)
class RelayProcess:
    """What a relay process is made of.

    app_spec: `module:name` of the app, so that suspects can be run in a child process; None = they run in this one.
    listen: whether it hears the doorbell; listen_dsn: where, if `dsn` leads to a pooler.
    allow_asynchronous_commit: money is moved even where a crash of the database can lose what it has committed.
    state_directory: where it remembers the money that it sent, over restarts; None = only while it runs (`witness.py`).
    only: handle just these destinations. name: shown in `status`. alone_module: what `python -m` runs as that child.
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
    allow_asynchronous_commit: bool = False
    state_directory: Path | None = None
    alone_module: str = "redrive.relay.crash.suspect_child"

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
        """As the settings say."""
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
            allow_asynchronous_commit=settings.asynchronous_commit == "warn",
            state_directory=settings.relay_state_directory,
        )


async def run_relay(process: RelayProcess, *, events: Events | None = None, signals: bool = True) -> None:
    """Until SIGTERM, SIGINT or cancellation; a cancellation stops gracefully too.

    Raises SchemaError on a database of another version, NotFound for a destination that the app does not have,
    SettingsError where money would be moved without synchronous commits, or at another address while some is in doubt.
    """
    events = events or Events()
    clock, random = SystemClock(), SystemRandom()
    destinations = _destinations(process)
    worker = new_worker(random)
    async with _store(process, f"redrive relay {process.name}".strip()) as store:
        await _require_schema(process, store, events=events)
        await _require_synchronous_commit(process, store, destinations, events=events)
        store.count_leases_from_now()
        watch = _clock_watch(process, store, worker, events=events)
        relay = _relay(process, store, destinations, worker, random=random, events=events, watch=watch)
        run_alone = (
            child(process, events) if process.app_spec else in_this_process(process, store, destinations, events=events)
        )
        turns = {name: child_seconds(destination, process.limits) for name, destination in destinations.items()}
        suspects = Suspects(store, turns, run_alone, clock=clock, random=random, events=events)
        duties = [*_engine_duties(process, watch, events), *process.app.duties.values()]
        alone = asyncio.create_task(suspects.run())
        requests = Requests(store, destinations, worker, clock=clock, random=random, events=events)
        asked = asyncio.create_task(requests.run())
        upkeep = asyncio.create_task(run_duties(store, duties, worker=worker, clock=clock, events=events))
        running = asyncio.create_task(relay.run())

        def stop() -> None:
            relay.stop()
            if not alone.cancelling():  # once: its child stops gracefully too, and a second time would kill it
                alone.cancel()

        if signals:
            _stop_on_signals(stop, [running, alone])
        try:
            await _until_ended(stop, running, [alone, upkeep, asked])
        finally:
            stop()
            await end([upkeep, asked])
            await asyncio.gather(alone, return_exceptions=True)
            await _close(destinations)


async def run_suspects(process: RelayProcess, worker: WorkerId, *, events: Events | None = None) -> None:
    """In the child: run suspects one at a time under this worker id, until none is left or its turn is over."""
    events = events or Events()
    destinations = _destinations(process)
    async with _store(process, "redrive suspects") as store:
        relay = _relay(process, store, destinations, worker, random=SystemRandom(), events=events, suspects_only=True)
        running = asyncio.create_task(relay.run())
        _stop_on_signals(relay.stop, [running])
        await running
    await _close(destinations)


async def _close(destinations: Mapping[str, Destination]) -> None:
    """What a transport keeps open, if it says so: connections, sessions."""
    for destination in destinations.values():
        close = getattr(destination.transport, "aclose", None)
        if close is not None:
            await close()


def run_to_exit(main: Coroutine[Any, Any, None]) -> NoReturn:
    """Run until it returns, then end the process, whatever handlers are still stuck in a thread or ignore their
    cancellation: they were settled as Unknown, and nothing of them may keep the process from ending."""
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


def child(process: RelayProcess, events: Events | None = None) -> RunAlone:
    """Runs suspects in a child process (`redrive.relay.crash.suspect_child`) and forwards its events as ours."""
    events = events or Events()

    async def run_alone(worker: WorkerId, destination: str, on_told: Callable[[str], None]) -> int:
        heard, told = os.pipe()
        settings = {
            "app": process.app_spec,
            "only": [destination],
            "limits": process.limits.limits(),
            "worker": str(worker),
            "seconds": child_seconds(process.app.destinations[destination], process.limits) + CHILD_END_SECONDS,
            "tell": told,
            "state_directory": None if process.state_directory is None else str(process.state_directory),
        }
        try:
            started = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                process.alone_module,
                stdin=asyncio.subprocess.PIPE,
                env=_child_environment(process.dsn),
                pass_fds=[told],
            )
        except OSError:  # no memory, no process left: later
            os.close(heard)
            return CHILD_NOT_STARTED
        finally:
            os.close(told)
        hearing = asyncio.create_task(hear(heard, events, on_told=on_told))
        try:
            await started.communicate(json_bytes(settings))
            return started.returncode or 0
        finally:
            if started.returncode is None:
                await _end_child(started, seconds=process.limits.stop_seconds + CHILD_END_SECONDS)
            await asyncio.wait([hearing], timeout=HEARD_SECONDS)
            await end([hearing])

    return run_alone


def child_seconds(destination: Destination, limits: RelayLimits) -> float:
    """After which a child of this destination is ended: a turn, and all that its last message may take by itself."""
    one_message = DISPATCH_STEPS * destination.timeout_seconds + ABANDON_SECONDS + limits.record_seconds
    return TURN_SECONDS + one_message + limits.stop_seconds


def in_this_process(
    process: RelayProcess, store: PostgresStore, destinations: Mapping[str, Destination], *, events: Events
) -> RunAlone:
    """Suspects one at a time, but here: for an app that cannot be imported by name."""

    async def run_alone(worker: WorkerId, destination: str, on_told: Callable[[str], None]) -> int:
        only = {destination: destinations[destination]}
        relay = _relay(process, store, only, worker, random=SystemRandom(), events=events, suspects_only=True)
        unsubscribe = events.subscribe(
            lambda name, values: on_told(name) if values["worker"] == worker else None, STARTED, WAITING
        )
        running = asyncio.create_task(relay.run())
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            relay.stop()  # as a child does it: a stop is no crash
            await running
            raise
        finally:
            unsubscribe()
        return 0

    return run_alone


def _store(process: RelayProcess, name: str) -> PostgresStore:
    seconds = max(STORE_SECONDS, WAIT_SECONDS + process.limits.record_timeout_seconds + 5)
    return PostgresStore(process.dsn, connections=CONNECTIONS, name=name, timeout_seconds=seconds)


async def _require_schema(process: RelayProcess, store: PostgresStore, *, events: Events) -> None:
    """The engine's and that of every system in the app; a database that is away is waited for."""
    sets = [MigrationSet(s.name, s.migrations) for s in process.app.systems.values() if s.migrations is not None]
    while True:
        try:
            return await require_schema(store, sets)
        except TransientFailure:
            events.emit("relay.unreachable", during="start", tries=0)
            await asyncio.sleep(UNREACHABLE_SECONDS)


async def _require_synchronous_commit(
    process: RelayProcess, store: PostgresStore, destinations: Mapping[str, Destination], *, events: Events
) -> None:
    """A crash of the database must not lose what was committed: a payment would be sent that nothing remembers."""
    money = sorted(name for name, destination in destinations.items() if destination.rules.money)
    if not money:
        return
    while True:
        try:
            ((commit,),) = await store.rows("SELECT current_setting('synchronous_commit')", [])
            break
        except TransientFailure:
            events.emit("relay.unreachable", during="start", tries=0)
            await asyncio.sleep(UNREACHABLE_SECONDS)
    if commit != "off":
        return
    if process.allow_asynchronous_commit:
        events.emit("relay.asynchronous_commit", destinations=money)
        return
    raise SettingsError(
        f"synchronous_commit is off for this login, and {money[0]!r} moves money: a crash of the database could lose"
        " what it has committed.",
        next="ALTER ROLE … SET synchronous_commit = on for the relay's login; or set asynchronous_commit = warn, if a"
        " payment that is lost from the database is acceptable",
    )


def _relay(
    process: RelayProcess,
    store: PostgresStore,
    destinations: Mapping[str, Destination],
    worker: WorkerId,
    *,
    random: Random,
    events: Events,
    watch: ClockWatch | None = None,
    suspects_only: bool = False,
) -> Relay:
    info = RelayInfo(
        worker=worker,
        name=process.name or f"{socket.gethostname()}:{os.getpid()}",
        host=socket.gethostname(),
        pid=os.getpid(),
        version=redrive.__version__,
        **declared(destinations, lease_seconds=process.limits.lease_seconds),
        suspects_only=suspects_only,
    )
    return Relay(
        store,
        destinations,
        info=info,
        limits=process.limits,
        clock=SystemClock(),
        random=random,
        events=events,
        open_listen_connection=None if suspects_only else _open_listen_connection(process, worker),
        witness=_witness(process, store, destinations, worker, events=events),
        has_children=process.app_spec is not None,
        clock_watch=watch or _clock_watch(process, store, worker, events=events),
    )


def _clock_watch(process: RelayProcess, store: PostgresStore, worker: WorkerId, *, events: Events) -> ClockWatch:
    return ClockWatch(
        store,
        worker,
        elapsed=SystemClock.elapsed,
        confirm_seconds=CONFIRM_SHARE * process.limits.heartbeat_seconds,
        events=events,
    )


def _witness(
    process: RelayProcess,
    store: PostgresStore,
    destinations: Mapping[str, Destination],
    worker: WorkerId,
    *,
    events: Events,
) -> Witness | None:
    """For what moves money; nothing else is remembered."""
    if not any(destination.rules.money for destination in destinations.values()):
        return None
    if process.state_directory is None:
        events.emit("relay.unwitnessed", worker=worker, error="NO_STATE_DIRECTORY")
    return Witness(
        store,
        worker,
        directory=process.state_directory,
        on_failure=lambda error: events.emit("relay.unwitnessed", worker=worker, error=error),
    )


def declared(
    destinations: Mapping[str, Destination], *, lease_seconds: float = RelayLimits().lease_seconds
) -> dict[str, Any]:
    """What all relays must know of these destinations, as fields of `RelayInfo`."""
    return {
        "destinations": sorted(destinations),
        "records": [name for name, d in destinations.items() if d.record is not None],
        "money": [name for name, d in destinations.items() if d.rules.money],
        "policies": {name: d.rules.version for name, d in destinations.items()},
        # The rate of one with limit keys is that of each key: relays book their turns
        # (`relay/backpressure/limit_keys.py`).
        "rates": {name: d.rate for name, d in destinations.items() if d.rate is not None and d.limit_key is None},
        "concurrency_limits": {
            name: d.global_concurrency for name, d in destinations.items() if d.global_concurrency is not None
        },
        "in_doubt": {name: d.rules.in_doubt for name, d in destinations.items()},
        "addresses": {name: d.rules.address for name, d in destinations.items() if d.rules.address is not None},
        "effects_within_seconds": {
            name: max(d.timeout_seconds, lease_seconds, d.rules.settlement_lag_seconds)
            for name, d in destinations.items()
            if d.rules.money
        },
    }


def _open_listen_connection(process: RelayProcess, worker: WorkerId) -> OpenListenConnection | None:
    return partial(listen_connection.opened, process.listen_dsn or process.dsn, worker) if process.listen else None


def _destinations(process: RelayProcess) -> dict[str, Destination]:
    destinations = process.app.only(process.only)
    if not destinations:
        raise SettingsError("The app declares no destination, so a relay would have nothing to do.")
    return destinations


def _engine_duties(process: RelayProcess, watch: ClockWatch, events: Events) -> list[redrive.app.Duty]:
    return engine_duties(
        reap_every_seconds=process.limits.reap_every_seconds,
        partition_days=process.partition_days,
        partitions_ahead=process.partitions_ahead,
        retention_days=process.retention_days,
        expected_time=watch.expected_time,
        events=events,
    )


def _stop_on_signals(stop: Callable[[], None], tasks: Sequence[asyncio.Task[None]]) -> None:
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
    """Work beside the path that fails stops the relay, loudly: without a reaper or suspects it would only seem well."""
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


async def _end_child(child: asyncio.subprocess.Process, *, seconds: float) -> None:
    """Ask it to stop; a child that does not is killed, and the lease that it leaves is reaped."""
    with suppress(ProcessLookupError):
        os.kill(child.pid, signal.SIGTERM)  # terminate() may take the exit status away from whoever waits for it
    try:
        async with asyncio.timeout(seconds):
            await child.wait()
    except TimeoutError:
        pass
    finally:
        if child.returncode is None:
            os.kill(child.pid, signal.SIGKILL)
    await child.wait()


def _child_environment(dsn: str) -> dict[str, str]:
    """The DSN travels in the environment, not on the command line, where everybody could read its password."""
    return {**os.environ, "REDRIVE_DSN": dsn}


def json_bytes(value: object) -> bytes:
    import json

    return json.dumps(value).encode()


def worker_from(text: str) -> WorkerId:
    return WorkerId(UUID(text))
