"""The metrics by name (E-07), read from a database in a known state."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from redrive.systems.evidence.metrics import METRICS
from tests.systems.evidence.conftest import attempt, begin, every, record, upload
from tests.systems.evidence.test_gates import ago, decide, now, requeue

Conn = psycopg.Connection[Any]
DOCUMENT = {
    "evidence.attach.first_attempt.success_rate",
    "evidence.attach.retry.success_rate",
    "evidence.retry.queue.depth",
    "evidence.n2.latency.seconds",
    "evidence.permanent_failures.count",
    "scheduler.duration.seconds",
    "scheduler.batch.size",
    "scheduler.circuit_breaker.open.count",
}


def gauges(conn: Conn) -> dict[str, Any]:
    """By name; of one with a label, its values by label."""
    found: dict[str, Any] = {}
    for name, metric in METRICS.items():
        assert metric.query is not None
        rows = [tuple(row) for row in every(conn, metric.query)]
        found[name] = {label: value for label, _, value in rows} if metric.labels else [value for _, _, value in rows]
    return found


@pytest.mark.req("E-07")
def test_every_metric_of_the_document_is_there_by_its_name_with_underscores() -> None:
    assert {seed for metric in METRICS.values() for seed in metric.seeds} == DOCUMENT
    assert {seed.replace(".", "_") for seed in DOCUMENT} <= set(METRICS)


@pytest.mark.req("E-07", "E-10")
def test_the_numbers_are_those_of_the_tables(conn: Conn) -> None:
    uploaded = upload(conn, 4, at=ago(minutes=50))
    good, recovered, broken, waiting = uploaded.files
    attempt(conn, good, at=ago(minutes=40))
    attempt(conn, recovered, "503", at=ago(minutes=40))
    attempt(conn, broken, "CORRUPTED_FILE", at=ago(minutes=40))
    attempt(conn, waiting, "NEVER_HEARD_OF", at=ago(minutes=1))
    assert decide(conn, uploaded.job) == ["N1"]
    assert requeue(conn, at=now(), force=False) == 1
    attempt(conn, recovered, at=now())
    conn.execute("SELECT redrive_evidence.scheduler_ran_1(1.5, 7, true)")
    found = gauges(conn)
    assert found["evidence_attach_first_attempt_success_rate"] == [0.25]
    assert found["evidence_attach_retry_success_rate"] == [1.0]
    assert found["evidence_retry_queue_depth"] == {"artifacts": 1.0, "rows": 1.0}
    assert found["evidence_permanent_failures_count"] == {"CORRUPTED_FILE": 1.0}
    assert found["evidence_permanent_failure_ratio"] == [pytest.approx(1 / 3)]
    assert found["evidence_n2_latency_seconds"] == []
    assert 0 < found["evidence_n2_waiting_seconds"][0] < 3600
    assert found["scheduler_duration_seconds"] == [1.5]
    assert found["scheduler_batch_size"] == [7.0]
    assert found["scheduler_circuit_breaker_open_count"] == [1.0]
    assert found["evidence_late_evidence_count"] == [0.0]


@pytest.mark.req("E-12")
def test_an_upload_that_is_settled_and_waits_for_n2_is_measured_from_its_last_outcome(conn: Conn) -> None:
    uploaded = upload(conn, 1, at=ago(hours=3))
    message = begin(conn, uploaded.files[0], at=ago(hours=3))
    record(conn, message, at=ago(hours=2))
    conn.execute("UPDATE redrive_evidence.file_job SET n1_sent_at = %s", (ago(hours=2),))
    (waiting,) = gauges(conn)["evidence_n2_after_last_retry_seconds"]
    assert timedelta(hours=2) <= timedelta(seconds=waiting) < timedelta(hours=2, minutes=10)
    assert decide(conn, uploaded.job) == ["N2"]
    assert gauges(conn)["evidence_n2_latency_seconds"][0] >= 7200
    assert gauges(conn)["evidence_n2_after_last_retry_seconds"][0] >= 7200


@pytest.mark.req("E-07")
def test_a_code_that_the_taxonomy_does_not_know_is_no_label(conn: Conn) -> None:
    uploaded = upload(conn, 1, at=ago(minutes=50))
    attempt(conn, uploaded.files[0], "X-1", at=ago(minutes=50))
    for minutes in (30, 10):
        requeue(conn, at=ago(minutes=minutes))
        attempt(conn, uploaded.files[0], "X-1", at=ago(minutes=minutes))
    assert gauges(conn)["evidence_permanent_failures_count"] == {"other": 1.0}
