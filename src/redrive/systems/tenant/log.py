"""The worker's log lines, `OUTBOX_WORKER_…`, with structured fields (T-04, T-08): logger `redrive.tenant`.

Fed by the events of the relay. An event's payload and the text of its failure are in no line.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from redrive.kit.relay import Events
from redrive.systems.tenant.names import LOGGER
from redrive.systems.tenant.options import OutboxOptions

FETCH: Final = "OUTBOX_WORKER_FETCH"
SUCCESS: Final = "OUTBOX_WORKER_DISPATCH_SUCCESS"
FAIL: Final = "OUTBOX_WORKER_DISPATCH_FAIL"
SKIP: Final = "OUTBOX_WORKER_SKIP_PROCESSED"
SUMMARY: Final = "OUTBOX_WORKER_SUMMARY"
_EVENTS: Final = ("claim.stop", "message.delivered", "message.retried", "message.parked", "message.refused")


class WorkerLog:
    """One relay's lines. A cycle is a look for work that found some."""

    def __init__(self, destination: str, options: OutboxOptions, *, logger: logging.Logger | None = None) -> None:
        self._destination = destination
        self._options = options
        self._log = logger or logging.getLogger(LOGGER)
        self._cycles = 0
        self._counts = {"processed": 0, "failed": 0, "skipped": 0}

    def subscribe(self, events: Events) -> Callable[[], None]:
        return events.subscribe(self._note, *_EVENTS)

    def _note(self, name: str, values: Mapping[str, Any]) -> None:
        if name == "claim.stop":
            self._cycle(values.get("counts", {}).get(self._destination, 0))
        elif values.get("destination") == self._destination:
            self._outcome(name, values)

    def _outcome(self, name: str, values: Mapping[str, Any]) -> None:
        # `id` is the name of these lines, `message_id` that of all lines of a relay, by which a line gets its trace.
        id = str(values["id"])
        fields = {"id": id, "message_id": id, "key": values.get("key"), "tenant": values.get("tenant")}
        match name:
            case "message.delivered":
                self._say(logging.INFO, SUCCESS, "processed", fields)
            case "message.refused":
                # Its claim was taken back, or the event settled by another relay: this outcome changes nothing.
                self._say(logging.INFO, SKIP, "skipped", fields)
            case _:
                spent = {"retry": values.get("spent"), "max": self._options.max_retries}
                # What is held in doubt is parked too, and no dead letter.
                dead = {"dead_letter": values.get("reason") == "dead", "error_code": values.get("code")}
                self._say(logging.WARNING, FAIL, "failed", {**fields, **spent, **dead})

    def _say(self, level: int, line: str, counted: str, fields: Mapping[str, Any]) -> None:
        self._counts[counted] += 1
        self._log.log(level, line, extra=dict(fields))

    def _cycle(self, count: int) -> None:
        if not count:
            return
        self._cycles += 1
        self._log.info(FETCH, extra={"count": count})
        every = self._options.summary_every_cycles
        if every and self._cycles % every == 0:
            self._log.info(SUMMARY, extra={"cycles": every, **self._counts})
            self._counts = dict.fromkeys(self._counts, 0)
