"""The child process that runs suspects: `python -m redrive.relay.alone`, its settings as JSON on standard input.

Whatever a suspect does to this process (exit, segmentation fault, out of memory) it does to nobody else: there is one
lease at a time, and the parent sees how the process ended. Started only by `redrive.relay.run.child`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from redrive.events import Events
from redrive.relay.limits import RelayLimits
from redrive.relay.load import load_app
from redrive.relay.run import RelayProcess, run_suspects, run_to_exit, worker_from
from redrive.relay.telling import tell


def main(events: Events | None = None) -> None:
    given = sys.stdin.buffer.read()
    if not given:
        return  # whoever started us died before it could say what for
    settings: dict[str, Any] = json.loads(given)
    process = RelayProcess(
        app=load_app(settings["app"]),
        dsn=os.environ["REDRIVE_DSN"],
        limits=RelayLimits(**settings["limits"]),
        app_spec=settings["app"],
        only=settings["only"],
        name="suspects",
        state_directory=None if settings.get("state_directory") is None else Path(settings["state_directory"]),
    )
    events = events or Events()
    tell(events, settings["tell"])
    run_to_exit(run_suspects(process, worker_from(settings["worker"]), events=events))


if __name__ == "__main__":
    main()
