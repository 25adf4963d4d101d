"""Log lines: the standard library's logging, rendered by structlog.

`configure` is for the command line; an application keeps its own logging. Of events only the values in `FIELDS` are
written: no payload, header, key or text of a message.
"""

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
_AS_THEY_ARE: Final = (
    "destination", "destinations", "attempt", "worker", "reason", "in_doubt", "delay_seconds", "seconds", "count",
    "lost", "during", "tries", "duty", "result", "pid", "consumer", "consumers", "in_hand", "oldest_seconds",
)  # fmt: skip
FIELDS: Final[Mapping[str, str]] = {name: name for name in _AS_THEY_ARE} | {
    "id": "message_id",
    "code": "error_code",
    "latency_ms": "duration_ms",
    "error": "error_type",
    "name": "duty",
}

_INFO: Final = (
    "relay.started", "relay.stopping", "relay.stopped", "listener.listening", "message.retried", "destination.resumed",
    "breaker.recovered", "suspects.waiting", "suspects.ended", "consumer.started", "consumer.progress",
    "consumer.stopped", "worker.started", "worker.stopped",
)  # fmt: skip
_WARNING: Final = (
    "relay.unreachable", "relay.reply_lost", "relay.asynchronous_commit", "relay.unwitnessed", "listener.reconnecting",
    "listener.deaf", "message.parked", "message.refused", "message.lease_lost", "destination.paused", "breaker.opened",
    "suspects.spawned", "consumer.deferred", "consumer.unreachable", "consumer.source_failed",
    "worker.unreachable",
)  # fmt: skip
_ERROR: Final = ("relay.restored", "relay.clock_jumped", "duty.failed", "lanes.mended", "consumer.reserved")
_LEVELS: Final[Mapping[str, int]] = {
    **dict.fromkeys(_INFO, logging.INFO),
    **dict.fromkeys(_WARNING, logging.WARNING),
    **dict.fromkeys(_ERROR, logging.ERROR),
}


def configure(log_format: str = "auto", level: str = "info", *, stream: TextIO | None = None) -> None:
    """To the stream (stderr). A second call replaces the first."""
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
    """Writes a line for each event whose level is enabled."""
    logger = logging.getLogger(LOGGER)
    names = [name for name in engine.NAMES if logger.isEnabledFor(level_of(name))]

    def write(name: str, values: Mapping[str, Any]) -> None:
        logger.log(level_of(name), name, extra=fields(values))

    return events.subscribe(write, *names) if names else lambda: None


def level_of(name: str) -> int:
    """Steps and deliveries are debug; what an operator should know is info or higher."""
    return _LEVELS.get(name, logging.DEBUG)


def fields(values: Mapping[str, Any]) -> dict[str, Any]:
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
        _chosen_fields,
        _trace_ids,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
    ]
    renderers: dict[str, list[Processor]] = {
        "console": [
            structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False, key="timestamp"),
            _without_origin,
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


_ALL_FIELDS: Final = ExtraAdder()
_KNOWN_FIELDS: Final = ExtraAdder(allow=sorted(set(FIELDS.values())))


def _chosen_fields(logger: Any, method: str, line: Any) -> Any:
    """All that Redrive and its systems write, for they choose their fields; of other lines those with our names."""
    is_own = line["_record"].name.partition(".")[0] == "redrive"
    chosen = (_ALL_FIELDS if is_own else _KNOWN_FIELDS)(logger, method, line)
    chosen.pop("message", None)  # of another handler, which has formatted the record before
    return chosen


def _trace_ids(_: Any, __: str, line: Any) -> Any:
    """Of the current span, or of the span in which the line's message was sent."""
    traces = sys.modules.get("redrive.operate.observe.traces")
    ids = traces.ids_of(line.get("message_id")) if traces else None
    return {**line, "trace_id": ids[0], "span_id": ids[1]} if ids else line


def _without_origin(_: Any, __: str, line: Any) -> Any:
    return {name: value for name, value in line.items() if name not in ("ts", "logger")}
