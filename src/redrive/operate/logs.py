"""Log lines: the standard library's logging, rendered by structlog.

`configure` is for the command line and its relays; an application keeps its own logging. `subscribe` turns events into
lines with the values listed in `FIELDS` only: no payload, header, key or text of a message reaches a line.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TextIO
from uuid import UUID

import structlog
from structlog.stdlib import ExtraAdder, ProcessorFormatter
from structlog.typing import Processor

from redrive import events as engine
from redrive.operate.sanitize import one_line

LOGGER: Final = "redrive.events"
VALUE_MAX: Final = 200  # characters
ITEMS_MAX: Final = 20  # of a value that is a list

# Name in the event to name in the line. Other values are left out.
FIELDS: Final[Mapping[str, str]] = {
    "id": "message_id",
    "destination": "destination",
    "destinations": "destinations",
    "attempt": "attempt",
    "worker": "worker",
    "code": "error_code",
    "reason": "reason",
    "in_doubt": "in_doubt",
    "delay_seconds": "delay_seconds",
    "seconds": "seconds",
    "latency_ms": "duration_ms",
    "error": "error_type",
    "count": "count",
    "lost": "lost",
    "during": "during",
    "tries": "tries",
    "duty": "duty",
    "name": "duty",
    "result": "result",
    "pid": "pid",
}

_LEVELS: Final[Mapping[str, int]] = {
    "relay.started": logging.INFO,
    "relay.stopping": logging.INFO,
    "relay.stopped": logging.INFO,
    "relay.unreachable": logging.WARNING,
    "relay.reply_lost": logging.WARNING,
    "relay.asynchronous_commit": logging.WARNING,
    "relay.restored": logging.ERROR,
    "relay.clock_jumped": logging.ERROR,
    "relay.unwitnessed": logging.WARNING,
    "listener.listening": logging.INFO,
    "listener.reconnecting": logging.WARNING,
    "listener.deaf": logging.WARNING,
    "message.retried": logging.INFO,
    "message.parked": logging.WARNING,
    "message.refused": logging.WARNING,
    "message.lease_lost": logging.WARNING,
    "destination.paused": logging.WARNING,
    "destination.resumed": logging.INFO,
    "breaker.opened": logging.WARNING,
    "breaker.recovered": logging.INFO,
    "duty.failed": logging.ERROR,
    "lanes.mended": logging.ERROR,
    "suspects.spawned": logging.WARNING,
    "suspects.waiting": logging.INFO,
    "suspects.ended": logging.INFO,
}


def configure(log_format: str = "auto", level: str = "info", *, stream: TextIO | None = None) -> None:
    """Sends this process's log lines to the stream (stderr). A second call replaces the first."""
    target = stream or sys.stderr
    handler = logging.StreamHandler(target)
    handler.set_name("redrive")
    handler.setFormatter(_formatter(log_format, target))
    root = logging.getLogger()
    for old in [one for one in root.handlers if one.get_name() == "redrive"]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())


def subscribe(events: engine.Events) -> Callable[[], None]:
    """Writes a line for each event whose level is enabled. Returns the function that ends it."""
    logger = logging.getLogger(LOGGER)
    names = [name for name in engine.NAMES if logger.isEnabledFor(level_of(name))]

    def write(name: str, values: Mapping[str, Any]) -> None:
        logger.log(level_of(name), name, extra=fields(values))

    return events.subscribe(write, *names) if names else lambda: None


def level_of(name: str) -> int:
    """Steps and deliveries are debug; what an operator should know is info or higher."""
    return _LEVELS.get(name, logging.DEBUG)


def fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of an event that may be in a line, under the line's names."""
    return {FIELDS[name]: _plain(value) for name, value in values.items() if name in FIELDS and value is not None}


def _plain(value: Any) -> Any:
    match value:
        case bool() | int() | float():
            return value
        case datetime():
            return value.isoformat()
        case str() | UUID():
            return one_line(value, limit=VALUE_MAX)
        case list() | tuple():
            return _plain_list(value)
        case _:
            return type(value).__name__  # never its content, which may be anything


def _plain_list(values: Sequence[Any]) -> list[Any]:
    plain = [_plain(value) for value in values[:ITEMS_MAX]]
    return [*plain, f"and {len(values) - ITEMS_MAX} more"] if len(values) > ITEMS_MAX else plain


def _formatter(log_format: str, stream: TextIO) -> ProcessorFormatter:
    colours = stream.isatty() and not os.environ.get("NO_COLOR")
    chosen = ("console" if stream.isatty() else "json") if log_format == "auto" else log_format
    before: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        ExtraAdder(allow=sorted(set(FIELDS.values()))),
        _trace_ids,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
    ]
    renderers: dict[str, list[Processor]] = {
        "console": [
            structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False, key="timestamp"),
            _without("ts", "logger"),
            structlog.dev.ConsoleRenderer(colors=colours, pad_event_to=24),
        ],
        "json": [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()],
        "logfmt": [
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(key_order=["ts", "level", "event"], drop_missing=True),
        ],
    }
    return ProcessorFormatter(
        foreign_pre_chain=before, processors=[ProcessorFormatter.remove_processors_meta, *renderers[chosen]]
    )


def _trace_ids(_: Any, __: str, line: Any) -> Any:
    """Adds the ids of the current span, or of the span in which the line's message was sent."""
    traces = sys.modules.get("redrive.operate.observe.traces")
    ids = traces.ids_of(line.get("message_id")) if traces else None
    return {**line, "trace_id": ids[0], "span_id": ids[1]} if ids else line


def _without(*names: str) -> Processor:
    def drop(_: Any, __: str, line: Any) -> Any:
        return {name: value for name, value in line.items() if name not in names}

    return drop
