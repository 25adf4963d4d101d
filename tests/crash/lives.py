"""What the crash tests say often: wait until all is quiet, stop a relay, look at a message's life."""

from __future__ import annotations

import signal
import time
from collections import Counter
from typing import Any, Final, LiteralString

from redrive.kit.proof import journal
from redrive.kit.proof.processes import Process
from redrive.prove.config import Config
from redrive.prove.environment import Environment
from redrive.prove.producer import Order

# A lease as short as the engine allows it to be sensibly, so that the tests heal fast.
CONFIG: Final = Config(lease_seconds=1.0, reap_every_seconds=0.2)
# A reaper that was killed at its duty keeps it for ten seconds; then lease, reap, lookups and retries.
QUIET_SECONDS: Final = 40.0


def wait_quiet(environment: Environment, *, seconds: float = QUIET_SECONDS) -> None:
    """Nothing is pending or leased any more."""
    assert environment.wait(environment.is_quiet, seconds=seconds), (
        f"still open after {seconds} s: {environment.counts()}"
    )


def wait_count(environment: Environment, name: str, least: int, *, seconds: float = QUIET_SECONDS) -> None:
    """That many messages are pending, leased, parked or closed."""
    reached = environment.wait(lambda: environment.counts()[name] >= least, seconds=seconds)
    assert reached, f"waited for {least} {name}: {environment.counts()}"


def stop(relay: Process, *, seconds: float = 20.0) -> int:
    """Ask it to stop; its exit code."""
    relay.signal(signal.SIGTERM)
    return relay.wait(seconds)


def enqueue(environment: Environment, name: str, destination: str, *, count: int = 1, **payload: Any) -> None:
    """Messages with the keys name/0, name/1, …"""
    environment.enqueue(Order(name=name, count=count, destinations=[destination], plain=True, payload=payload))


def key_ids(environment: Environment) -> dict[str, str]:
    """Key to id, of every message."""
    return dict(rows(environment, "SELECT key, id::text FROM redrive.message"))


def rows(environment: Environment, query: LiteralString, *values: object) -> list[Any]:
    return environment.rows(query, *values)


def pass_time(environment: Environment, seconds: float) -> None:
    """Let that much real time go by: what is tested is that it does."""
    over = time.monotonic() + seconds
    assert environment.wait(lambda: time.monotonic() > over, seconds=seconds + 5)


def open_gate(environment: Environment, name: str) -> None:
    (environment.directory / f"gate-{name}").touch()


def wait_at_gate(environment: Environment, name: str, attempts: int) -> None:
    """That many attempts have begun and stand before the gate; a lease alone may not have begun."""
    marks = f"gate-{name}.at-*"
    begun = environment.wait(lambda: len(list(environment.directory.glob(marks))) >= attempts, seconds=QUIET_SECONDS)
    assert begun, f"waited for {attempts} attempts at {name}: {environment.counts()}"


def gate(environment: Environment) -> dict[str, str]:
    """The environment of a relay whose handlers wait for gates."""
    return {"REDRIVE_TEST_GATE": str(environment.directory / "gate")}


def sends(environment: Environment) -> Counter[str]:
    """How often each message was sent, by the observer's log alone."""
    return Counter(
        line["id"] for line in journal.read(environment.log) if line["log"] == "request" and line["call"] == "send"
    )


def said(environment: Environment) -> str:
    """What processes have printed: tracebacks, where something went wrong."""
    return "\n".join(path.read_text("utf-8", "replace") for path in environment.processes.said())
