"""Builds a relay from the settings of its process, with the real clock."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Mapping
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import redrive
from redrive.app import Destination
from redrive.events import Events
from redrive.message import WorkerId
from redrive.ports import RelayInfo
from redrive.relay.clock_watch import ClockWatch
from redrive.relay.crash.witness import Witness
from redrive.relay.loop import Relay
from redrive.relay.wakeup.listening import OpenListenConnection
from redrive.settings import RelayLimits
from redrive.store.runtime import listen_connection
from redrive.store.runtime.postgres import PostgresStore

if TYPE_CHECKING:
    from redrive.relay.process import RelayProcess

CONFIRM_SHARE = 0.9  # of a heartbeat: the second look at the clock comes one heartbeat after the first, or a bit sooner


class SystemClock:
    monotonic = staticmethod(time.monotonic)

    @staticmethod
    def elapsed() -> float:
        """Goes on while the machine is suspended, where the system has such a clock."""
        return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def build_relay(
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
        clock_watch=watch or clock_watch(process, store, worker, events=events),
    )


def clock_watch(process: RelayProcess, store: PostgresStore, worker: WorkerId, *, events: Events) -> ClockWatch:
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
    """None where nothing moves money."""
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


def _open_listen_connection(process: RelayProcess, worker: WorkerId) -> OpenListenConnection | None:
    return partial(listen_connection.opened, process.listen_dsn or process.dsn, worker) if process.listen else None


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
