"""The relays of the proof, as processes that `redrive.kit.proof.fork_server` starts: each in milliseconds."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

from redrive.kit.proof import failpoints
from redrive.kit.proof.fork_server import serve
from redrive.kit.relay import Events, RelayLimits, RelayProcess, run_relay, run_to_exit
from redrive.systems.reviews.prove import app

MODULE: Final = "redrive.systems.reviews.prove.processes"


def _relay(settings: Mapping[str, Any]) -> NoReturn:
    os.environ.update(settings["environment"])  # before anything is made: a child for suspects reads it too
    events = Events()
    failpoints.install(events)
    process = RelayProcess(
        app=app.made(json.loads(os.environ[app.VARIABLE])),
        dsn=os.environ["REDRIVE_DSN"],
        limits=RelayLimits(**settings["limits"]),
        app_spec=app.SPEC,
        only=settings["only"],
        name=settings["name"],
        retention_days=1.0,
        suspect_module="redrive.kit.proof.suspect_child",
    )
    run_to_exit(run_relay(process, events=events))


if __name__ == "__main__":
    serve(Path(sys.argv[1]), {"relay": _relay})
