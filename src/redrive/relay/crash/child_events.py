"""Sends the events of a child process for suspects through a pipe to its relay, which emits them as its own.

An event is in the pipe before the next message begins, so logs and metrics miss nothing, however the child ends.
"""

import asyncio
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from redrive.events import FACTS, Events

STARTED: Final = "relay.started"  # only for the parent
WAITING: Final = "suspects.waiting"
TOLD: Final = (*(name for name in FACTS if name.startswith("message.")), STARTED, WAITING)
HEARD_SECONDS: Final = 1.0  # all events are in the pipe when the child has ended; another process may keep it open


def tell(events: Events, pipe: int) -> Callable[[], None]:
    """One line for each event about a message; a pipe that is full or closed is ignored."""
    os.set_inheritable(pipe, False)
    os.set_blocking(pipe, False)

    def write(name: str, values: Mapping[str, Any]) -> None:
        line = json.dumps({"name": name, "values": dict(values)}, default=str)
        with suppress(OSError):
            os.write(pipe, line.encode() + b"\n")  # shorter than PIPE_BUF: whole or not at all

    return events.subscribe(write, *TOLD)


async def forward(pipe: int, events: Events, *, on_told: Callable[[str], None] = lambda _: None) -> None:
    """Until the other end is closed. on_told: called with STARTED and WAITING."""
    reader = asyncio.StreamReader()
    file = os.fdopen(pipe, "rb")
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), file
    )
    try:
        while line := await reader.readline():
            _forward(line, events, on_told)
    finally:
        transport.close()


def _forward(line: bytes, events: Events, on_told: Callable[[str], None]) -> None:
    try:
        said = json.loads(line)
        name, values = said["name"], dict(said["values"])
    except (ValueError, TypeError, KeyError):
        return  # half a line of a process that died
    if name not in TOLD:
        return
    if name != STARTED:
        events.emit(name, **values)
    if name in {STARTED, WAITING}:
        on_told(name)
