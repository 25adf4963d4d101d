"""The child process that runs suspects: `python -m redrive.relay.crash.suspect_child`, settings as JSON on stdin.

A suspect that ends this process (exit, segmentation fault, out of memory) harms no other message: it holds one lease. A
child that has lived too long ends itself, because its parent may be dead. Started by `child_process.py`.
"""

import faulthandler
import json
import os
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

from redrive.events import Events
from redrive.message import WorkerId
from redrive.relay.crash.child_events import WAITING, tell
from redrive.relay.load_app import load_app
from redrive.relay.process import RelayProcess, run_suspects, run_to_exit
from redrive.settings import RelayLimits


def main(events: Events | None = None) -> None:
    given = sys.stdin.buffer.read()
    if not given:
        return  # the parent died before it could say what for
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
    faulthandler.dump_traceback_later(settings["seconds"], exit=True)  # in a thread that needs nothing of the others
    events.subscribe(lambda *_: faulthandler.cancel_dump_traceback_later(), WAITING)
    tell(events, settings["tell"])
    run_to_exit(run_suspects(process, WorkerId(UUID(settings["worker"])), events=events))


if __name__ == "__main__":
    main()
