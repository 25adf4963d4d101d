"""The relays and observers of histories of the engine, as processes that `fork_server` starts."""

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

from redrive.kit.proof.fork_server import serve
from redrive.prove import client, observer
from redrive.prove.histories import destinations
from redrive.relay.process import RelayProcess, run_relay, run_to_exit
from redrive.settings import RelayLimits

MODULE: Final = "redrive.prove.histories.processes"
TICK_SECONDS: Final = 0.1
STALL_SECONDS: Final = 0.5


def _relay(settings: Mapping[str, Any]) -> NoReturn:
    os.environ["REDRIVE_DSN"] = settings["dsn"]
    os.environ[client.SOCKET_VARIABLE] = settings["socket"]
    os.environ[destinations.HANDLERS_VARIABLE] = settings["handlers"]
    threading.Thread(target=_watch, args=[Path(settings["handlers"])], daemon=True).start()
    process = RelayProcess(
        app=destinations.app,
        app_spec=destinations.APP,
        dsn=settings["dsn"],
        limits=RelayLimits(**settings["limits"]),
        name=settings["name"],
    )
    run_to_exit(run_relay(process))


def _watch(journal: Path) -> None:
    """Writes down when this process stood still, or the machine did not let it run."""
    before = second = time.time()
    waited = _waited_for_a_processor()
    while True:
        time.sleep(TICK_SECONDS)
        now = time.time()
        if now - before > TICK_SECONDS + STALL_SECONDS:
            _write_stall(journal, before, now)
        if now - second >= 1.0:
            before_that, waited = waited, _waited_for_a_processor()
            if waited - before_that > STALL_SECONDS * (now - second):
                _write_stall(journal, second, now)
            second = now
        before = now


def _waited_for_a_processor() -> float:
    """Seconds, of the main thread, since it began; 0 where the system does not count them."""
    try:
        return int(Path(f"/proc/self/task/{os.getpid()}/schedstat").read_text("ascii").split()[1]) / 1e9
    except OSError:
        return 0.0


def _write_stall(journal: Path, since: float, until: float) -> None:
    line = {"log": "stall", "pid": os.getpid(), "since": since, "until": until}
    with journal.open("ab", buffering=0) as file:
        file.write(json.dumps(line).encode() + b"\n")


def _observer(settings: Mapping[str, Any]) -> None:
    asyncio.run(
        observer.main(
            Path(settings["socket"]),
            Path(settings["log"]),
            {"script": {"send": {}, "lookup": {}}, "remembers": destinations.REMEMBERING, "durable": False},
        )
    )


if __name__ == "__main__":
    serve(Path(sys.argv[1]), {"relay": _relay, "observer": _observer})
