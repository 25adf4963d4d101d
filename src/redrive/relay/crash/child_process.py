"""Runs suspects in a child process, or, for an app that cannot be imported by name, in this one."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from random import SystemRandom
from typing import TYPE_CHECKING, Protocol

from redrive.app import Destination
from redrive.events import Events
from redrive.message import WorkerId
from redrive.relay.build import build_relay
from redrive.relay.claiming.claimer import TURN_SECONDS
from redrive.relay.crash.child_events import HEARD_SECONDS, STARTED, WAITING, forward
from redrive.relay.crash.suspects import RunSuspects
from redrive.relay.dispatching.deadlines import ABANDON_SECONDS
from redrive.relay.dispatching.destination_queue import DISPATCH_STEPS
from redrive.relay.tasks import end
from redrive.settings import RelayLimits
from redrive.store.runtime.postgres import PostgresStore

if TYPE_CHECKING:
    from redrive.relay.process import RelayProcess


class Child(Protocol):
    """`asyncio.subprocess.Process`, as far as it is ended."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    async def wait(self) -> int: ...


CHILD_END_SECONDS = 5.0  # on top of its graceful stop
CHILD_NOT_STARTED = 127  # as a shell says it


def child(process: RelayProcess, events: Events | None = None) -> RunSuspects:
    """In a child process (`redrive.relay.crash.suspect_child`); its events are forwarded as ours."""
    events = events or Events()

    async def run_suspects(worker: WorkerId, destination: str, on_told: Callable[[str], None]) -> int:
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
                process.suspect_module,
                stdin=asyncio.subprocess.PIPE,
                env=_child_environment(process.dsn),
                pass_fds=[told],
            )
        except OSError:  # no memory, no process left: later
            os.close(heard)
            return CHILD_NOT_STARTED
        finally:
            os.close(told)
        forwarding = asyncio.create_task(forward(heard, events, on_told=on_told))
        try:
            await started.communicate(json.dumps(settings).encode())
            return started.returncode or 0
        finally:
            if started.returncode is None:
                await end_child(started, seconds=process.limits.stop_seconds + CHILD_END_SECONDS)
            await asyncio.wait([forwarding], timeout=HEARD_SECONDS)
            await end([forwarding])

    return run_suspects


def turn_seconds(destinations: Mapping[str, Destination], limits: RelayLimits) -> dict[str, float]:
    return {name: child_seconds(destination, limits) for name, destination in destinations.items()}


def child_seconds(destination: Destination, limits: RelayLimits) -> float:
    """After which a child is ended: a turn, and all that its last message may take."""
    one_message = DISPATCH_STEPS * destination.timeout_seconds + ABANDON_SECONDS + limits.record_seconds
    return TURN_SECONDS + one_message + limits.stop_seconds


def in_this_process(
    process: RelayProcess, store: PostgresStore, destinations: Mapping[str, Destination], *, events: Events
) -> RunSuspects:
    """One at a time, here: for an app that cannot be imported by name."""

    async def run_suspects(worker: WorkerId, destination: str, on_told: Callable[[str], None]) -> int:
        only = {destination: destinations[destination]}
        relay = build_relay(process, store, only, worker, random=SystemRandom(), events=events, suspects_only=True)
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

    return run_suspects


async def end_child(child: Child, *, seconds: float) -> None:
    """A child that does not stop is killed, and its lease is reaped."""
    with suppress(ProcessLookupError):
        os.kill(child.pid, signal.SIGTERM)  # terminate() may take the exit status away from `wait`
    try:
        async with asyncio.timeout(seconds):
            await child.wait()
    except TimeoutError:
        pass
    finally:
        if child.returncode is None:
            with suppress(ProcessLookupError):  # it has ended, which `wait` says a moment later
                os.kill(child.pid, signal.SIGKILL)
    await child.wait()


def _child_environment(dsn: str) -> dict[str, str]:
    """In the environment, because other users could read a password on the command line."""
    return {**os.environ, "REDRIVE_DSN": dsn}
