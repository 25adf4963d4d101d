"""A relay process of a proof, with the failpoint of the environment; its settings are JSON on standard input.

`run` is the same for a process that a fork server starts.
"""

import json
import os
import sys
from collections.abc import Mapping
from typing import Any, NoReturn

from redrive.app import App
from redrive.events import Events
from redrive.kit.proof import failpoints
from redrive.relay.load_app import load_app
from redrive.relay.process import RelayProcess, run_relay, run_to_exit
from redrive.settings import RelayLimits


def main() -> None:
    settings: dict[str, Any] = json.loads(sys.stdin.buffer.read())
    run(load_app(settings["app"]), settings["app"], settings)


def run(app: App, spec: str, settings: Mapping[str, Any]) -> NoReturn:
    """spec: where a child for suspects finds the app."""
    events = Events()
    failpoints.install(events)
    process = RelayProcess(
        app=app,
        dsn=os.environ["REDRIVE_DSN"],
        limits=RelayLimits(**settings["limits"]),
        app_spec=spec,
        only=settings.get("only", ()),
        name=settings.get("name", "proof"),
        retention_days=settings.get("retention_days"),
        suspect_module="redrive.kit.proof.suspect_child",
    )
    run_to_exit(run_relay(process, events=events))


if __name__ == "__main__":
    main()
