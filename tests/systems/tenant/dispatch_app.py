"""Relays of the race of dispatchers: each delivery is a line with the process that made it, in one file.

The first delivery of a process waits until all of them have begun one, so that none is left out of the race.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Final

from redrive import App, Attempt
from redrive.kit.proof import journal
from redrive.systems.tenant import EventTypes, Outbox, OutboxOptions

VARIABLE: Final = "REDRIVE_TEST_DISPATCH_LOG"
RELAYS: Final = 4
SPEC: Final = "tests.systems.tenant.dispatch_app:app"

types = EventTypes()
types.declare("TaskCompleted", category="task")
outbox = Outbox(
    types, options=OutboxOptions(poll_interval_seconds=1, batch_size=10), concurrency=5, timeout_seconds=120
)
app = App()


def processes(log: Path) -> set[int]:
    return {line["pid"] for line in journal.read(log)}


@outbox.deliver
async def deliver(event: Attempt) -> None:
    log = Path(os.environ[VARIABLE])
    written = journal.Journal(log, durable=False)
    written.write(pid=os.getpid(), id=str(event.id), key=event.key)
    written.close()
    while len(processes(log)) < RELAYS:  # noqa: ASYNC110 - by other processes
        await asyncio.sleep(0.05)


app.include(outbox.system())
