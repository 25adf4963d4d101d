"""The metrics of evidence, by the names of their document with underscores for dots (E-07).

Read from the database by the relay that serves metrics: `gauge_1` of `sql/verbs/measures.sql`. Rates, ratios and mean
latencies are those of the last hour.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, LiteralString

from redrive.kit.metrics import Kind, Metric


def _gauge(name: str, query: LiteralString, meaning: str, *seeds: str, **more: Any) -> Metric:
    return Metric(name=name, kind=Kind.GAUGE, meaning=meaning, gauge=name, query=query, seeds=seeds, **more)


_ALL: Final = (
    _gauge(
        "evidence_attach_first_attempt_success_rate",
        "SELECT label, NULL, value FROM redrive_evidence.gauge_1('first_attempt_success_rate')",
        "Share of the first attempts of the last hour that attached their file.",
        "evidence.attach.first_attempt.success_rate",
    ),
    _gauge(
        "evidence_attach_retry_success_rate",
        "SELECT label, NULL, value FROM redrive_evidence.gauge_1('retry_success_rate')",
        "Share of the retries of the last hour that attached their file.",
        "evidence.attach.retry.success_rate",
    ),
    _gauge(
        "evidence_retry_queue_depth",
        "SELECT label, NULL, value FROM redrive_evidence.gauge_1('queue_depth')",
        "Files that wait for a retry, due or not, and the rows that they belong to.",
        "evidence.retry.queue.depth",
        labels=("unit",),
        words={"unit": ("artifacts", "rows")},
    ),
    _gauge(
        "evidence_n2_latency_seconds",
        "SELECT label, NULL, value FROM redrive_evidence.gauge_1('n2_latency')",
        "Mean time from N1 to N2, of the final notices of the last hour.",
        "evidence.n2.latency.seconds",
    ),
    _gauge(
        "evidence_n2_waiting_seconds",
        "SELECT label, NULL, value FROM redrive_evidence.gauge_1('n2_waiting')",
        "How long the oldest upload has waited for its N2 since its N1.",
    ),
    _gauge(
        "evidence_n2_after_last_retry_seconds",
        "SELECT label, NULL, value FROM redrive_evidence.gauge_1('n2_after_last_retry')",
        "Longest time from the last outcome of an upload to its N2: of the last hour, and of those that wait now.",
    ),
    _gauge(
        "evidence_permanent_failures_count",
        "SELECT label, NULL, value FROM redrive_evidence.gauge_1('permanent_failures')",
        "Files that failed for good, of all time, by error code.",
        "evidence.permanent_failures.count",
        labels=("error_code",),
    ),
    _gauge(
        "evidence_permanent_failure_ratio",
        "SELECT label, NULL, value FROM redrive_evidence.gauge_1('permanent_failure_ratio')",
        "Share of the files settled in the last hour that failed for good.",
    ),
    _gauge(
        "evidence_late_evidence_count",
        "SELECT label, NULL, value FROM redrive_evidence.gauge_1('late_evidence')",
        "Files, of all time, that turned out to be attached after their attempt had counted as failed.",
    ),
    _gauge(
        "scheduler_duration_seconds",
        "SELECT label, NULL, value FROM redrive_evidence.gauge_1('scheduler_duration')",
        "How long the last run of the retry scheduler took.",
        "scheduler.duration.seconds",
    ),
    _gauge(
        "scheduler_batch_size",
        "SELECT label, NULL, value FROM redrive_evidence.gauge_1('scheduler_batch_size')",
        "Rows that the last run of the retry scheduler requeued.",
        "scheduler.batch.size",
    ),
    _gauge(
        "scheduler_circuit_breaker_open_count",
        "SELECT label, NULL, value FROM redrive_evidence.gauge_1('scheduler_breaker_open')",
        "Runs of the retry scheduler, of all time, that found the Case API down.",
        "scheduler.circuit_breaker.open.count",
    ),
    _gauge(
        "scheduler_heartbeat_timestamp_seconds",
        "SELECT label, NULL, value FROM redrive_evidence.gauge_1('scheduler_heartbeat')",
        "When the retry scheduler ran last.",
    ),
)
METRICS: Final[Mapping[str, Metric]] = {metric.name: metric for metric in _ALL}
