"""The relays of the proof, as processes that `redrive.kit.proof.fork_server` starts: each in milliseconds."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

from redrive.kit.proof.fork_server import serve
from redrive.kit.proof.relay import run
from redrive.systems.reviews.prove import app

MODULE: Final = "redrive.systems.reviews.prove.processes"


def _relay(settings: Mapping[str, Any]) -> NoReturn:
    os.environ.update(settings["environment"])  # before anything is made: a child for suspects reads it too
    run(app.made(json.loads(os.environ[app.VARIABLE])), app.SPEC, settings)


if __name__ == "__main__":
    serve(Path(sys.argv[1]), {"relay": _relay})
