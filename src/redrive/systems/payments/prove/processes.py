"""Relays and rails of histories, as processes that `redrive.kit.proof.fork_server` starts."""

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from redrive import App, Backoff, Policy
from redrive.kit.proof.fork_server import serve
from redrive.kit.relay import RelayLimits, RelayProcess, run_relay, run_to_exit
from redrive.systems.payments.rail import server
from redrive.systems.payments.rails import SIMULATED, Rail, with_rails

MODULE = "redrive.systems.payments.prove.processes"
_QUICK = Backoff(initial_seconds=0.02, multiplier=2, max_seconds=0.2, jitter="full")


def rail_of(values: Mapping[str, Any]) -> Rail:
    policy = Policy(attempts=4, backoff=_QUICK, lookups=3, lookup_backoff=_QUICK, crashes=3)
    return Rail(
        policy=policy,
        breaker=None,
        egress=SIMULATED,
        **values,
    )


def _relay(settings: Mapping[str, Any]) -> NoReturn:
    app = App()
    app.include(
        with_rails(
            [rail_of(settings["rail"])],
            reconcile_every_seconds=settings["reconcile_every_seconds"],
            lag_seconds=settings["lag_seconds"],
        )
    )
    process = RelayProcess(
        app=app,
        dsn=settings["dsn"],
        limits=RelayLimits(**settings["limits"]),
        name=settings["name"],
        state_directory=Path(settings["state"]),
    )
    run_to_exit(run_relay(process))


def _rail(settings: Mapping[str, Any]) -> None:
    with Path(settings["address"]).open("w", encoding="utf-8") as sys.stdout:
        asyncio.run(server.serve(server.settings_of(settings)))


if __name__ == "__main__":
    serve(Path(sys.argv[1]), {"relay": _relay, "rail": _rail})
