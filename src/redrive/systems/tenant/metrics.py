"""The metrics of an outbox, for relays (T-05, T-12). Numbers of the tables come from one query, `gauges_1`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from redrive.kit.metrics import Feed, Kind, Metric
from redrive.systems.tenant.names import DESTINATION_PREFIX

_GAUGE: Final = "tenant_outbox"
# Long enough for the longest bound of an age, a day.
LATENCY_BUCKETS: Final = (0.01, 0.05, 0.25, 1.0, 5.0, 30.0, 120.0, 600.0, 3600.0, 21_600.0, 86_400.0)


def _gauge(name: str, measure: str, meaning: str, *seeds: str, **more: Any) -> Metric:
    return Metric(
        name=f"outbox_{name}",
        kind=Kind.GAUGE,
        meaning=meaning,
        labels=("outbox",),
        gauge=_GAUGE,
        reason=measure,
        only=DESTINATION_PREFIX,
        seeds=seeds,
        **more,
    )


def _counter(name: str, meaning: str, **events: Feed) -> Metric:
    fed = {f"message.{event}": feed for event, feed in events.items()}
    return Metric(
        name=f"outbox_{name}", kind=Kind.COUNTER, meaning=meaning, labels=(), events=fed, only=DESTINATION_PREFIX
    )


_ALL: Final = (
    _gauge(
        "backlog_size",
        "backlog",
        "Events that are not processed yet, dead letters left out.",
        "BacklogSize",
        query="SELECT outbox, measure, value FROM redrive_tenant.gauges_1()",
    ),
    _gauge("failed_pending", "failed", "Unprocessed events that failed at least once, dead ones too.", "FailedPending"),
    _gauge("old_failures", "old", "Unprocessed events that failed OldFailureRetries times or more, dead ones too."),
    _gauge("dead_letters", "dead", "Events that were given up and wait for a person.", "DeadLetter"),
    _gauge("oldest_age_seconds", "oldest", "Age of the oldest unprocessed event that is not dead.", "OldestAgeSeconds"),
    _gauge("processing_latency_seconds", "latency", "Mean age of the unprocessed events that are not dead."),
    _gauge("throughput_per_second", "throughput", "Events processed a second, over the window.", "Throughput"),
    _gauge("failure_ratio", "failure_ratio", "Share of the attempts in the window that failed.", "FailureRatio"),
    _counter("processed_total", "Events that this relay delivered.", delivered=Feed()),
    _counter("failures_total", "Attempts of this relay that failed.", retried=Feed(), parked=Feed()),
    Metric(
        name="outbox_delivery_seconds",
        kind=Kind.HISTOGRAM,
        meaning="From the commit of an event to its delivery.",
        labels=("destination",),
        events={"message.delivered": Feed(amount="age_seconds")},
        buckets=LATENCY_BUCKETS,
        only=DESTINATION_PREFIX,
    ),
)
METRICS: Final[Mapping[str, Metric]] = {metric.name: metric for metric in _ALL}
