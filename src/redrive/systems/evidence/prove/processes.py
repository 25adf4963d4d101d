"""The relays and workers of the proof, as processes that `redrive.kit.proof.fork_server` starts in milliseconds."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NoReturn

from redrive import App
from redrive.kit.proof.fork_server import serve
from redrive.kit.proof.relay import run
from redrive.kit.relay import WorkerProcess, run_worker
from redrive.systems.evidence.prove import app

MODULE: Final = "redrive.systems.evidence.prove.processes"


def _relay(settings: Mapping[str, Any]) -> NoReturn:
    os.environ.update(settings["environment"])  # before anything is made: a child for suspects reads it too
    run(_app(settings["module"]), f"{settings['module']}:app", settings)


def _worker(settings: Mapping[str, Any]) -> None:
    os.environ.update(settings["environment"])
    process = WorkerProcess(app=_app(settings["module"]), dsn=os.environ["REDRIVE_DSN"], name=settings["name"])
    asyncio.run(run_worker(process))
    os._exit(0)


def _app(module: str) -> App:
    """The app is made of the environment, which this process has only now."""
    made: App = import_module(module).made(json.loads(os.environ[app.VARIABLE]))
    return made


if __name__ == "__main__":
    serve(Path(sys.argv[1]), {"relay": _relay, "worker": _worker})
