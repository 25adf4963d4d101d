"""The snapshot in Prometheus' text format, for a scraper that reaches the API and no relay."""

from __future__ import annotations

from typing import Final

from redrive.systems.tenant.metrics import METRICS
from redrive.systems.tenant.reads import Numbers

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_VALUES: Final = {
    "outbox_backlog_size": "backlog_size",
    "outbox_failed_pending": "failed_pending",
    "outbox_old_failures": "old_failures",
    "outbox_dead_letters": "dead_letters",
    "outbox_oldest_age_seconds": "oldest_age_seconds",
    "outbox_processing_latency_seconds": "processing_latency_seconds",
    "outbox_throughput_per_second": "throughput",
    "outbox_failure_ratio": "failure_ratio",
}


def exposition(numbers: Numbers) -> str:
    """Gauges without labels: all outboxes, of the tenants that the caller may see."""
    lines = []
    for name, attribute in _VALUES.items():
        lines += [f"# HELP {name} {METRICS[name].meaning}", f"# TYPE {name} gauge"]
        lines.append(f"{name} {float(getattr(numbers, attribute))!r}")
    return "\n".join([*lines, ""])
