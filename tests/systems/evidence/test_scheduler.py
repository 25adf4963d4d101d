"""The retry scheduler (E-03, E-04): what it requeues, what it leaves alone, and the three indexes of the document."""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Barrier
from typing import Any
from uuid import UUID

import psycopg
import pytest

from redrive.errors import InvalidValue
from redrive.kit.database import open_database
from redrive.systems.evidence.names import FAILED_REQUESTS
from redrive.systems.evidence.scheduler import schedule
from redrive.systems.evidence.settings import EvidenceSettings, read_settings
from tests.systems.evidence.conftest import (
    BEGAN,
    artifact,
    attempt,
    begin,
    connect,
    eligible,
    events,
    every,
    one,
    status,
    upload,
)

Conn = psycopg.Connection[Any]
LATER = BEGAN + timedelta(minutes=6)
QUERY = "SELECT * FROM redrive_evidence.schedule_retries_1(%s, %s, p_now => %s)"


def run(conn: Conn, at: datetime = LATER, *, job: UUID | None = None, limit: int = 200) -> tuple[int, int]:
    found = one(conn, QUERY, job, limit, at)
    return found.rows_scheduled, found.artifacts_scheduled


@pytest.mark.req("E-03", "E-11")
@pytest.mark.seed("000", "Outbox updates are transactional (atomic state transitions).")
def test_a_row_with_a_due_file_gets_one_event_with_all_its_files(conn: Conn) -> None:
    uploaded = upload(conn, 3)
    attached, due, broken = uploaded.files
    attempt(conn, attached)
    attempt(conn, due, "503")
    attempt(conn, broken, "INVALID_FORMAT")
    assert run(conn, BEGAN + timedelta(minutes=4)) == (0, 0)
    with conn.transaction(force_rollback=True):
        assert run(conn) == (1, 1)
    assert (status(conn, due), events(conn, FAILED_REQUESTS)) == ("FAILED/RETRY_FAILED", [])
    assert run(conn) == (1, 1)
    assert status(conn, due) == "FAILED/RETRY_SCHEDULED"
    event = events(conn, FAILED_REQUESTS)[0]
    assert set(event) == {
        *("event_id", "event_type", "occurred_at", "file_job_id", "file_job_row_id", "case_id", "artifacts"),
        *("retry_reason", "schema_version"),
    }
    assert (event["event_type"], event["retry_reason"], event["schema_version"]) == (
        "EVIDENCE_ATTACH_RETRY",
        "AUTOMATED_RETRY",
        1,
    )
    assert {file["artifact_id"] for file in event["artifacts"]} == {str(id) for id in uploaded.files}
    assert set(event["artifacts"][0]) == {"artifact_id", "s3_key"}
    assert run(conn) == (0, 0)
    # The worker takes what is due of it, and nothing else.
    assert eligible(conn, uploaded.files, LATER) == {due: 2}


@pytest.mark.req("E-03")
def test_files_without_a_code_are_no_reason_to_pass_a_row_over(conn: Conn) -> None:
    """In the document `code NOT IN (…)` is NULL for a file without one; here it is chosen by what may be retried."""
    uploaded = upload(conn, 2)
    attempt(conn, uploaded.files[0], "500")
    assert run(conn) == (0, 0)  # the row is PENDING until each file had its first attempt
    attempt(conn, uploaded.files[1])
    assert run(conn) == (1, 1)


@pytest.mark.req("E-04")
@pytest.mark.parametrize("code", ["CORRUPTED_FILE", "S3_NOT_FOUND", "401", "CASE_NOT_FOUND", "UNAUTHORIZED"])
@pytest.mark.seed("000", "Scheduler filters out permanently failed files (error-type check).")
def test_every_permanent_code_is_left_alone_not_the_two_of_the_document_only(conn: Conn, code: str) -> None:
    uploaded = upload(conn, 1)
    attempt(conn, uploaded.files[0], code)
    assert status(conn, uploaded.files[0]) == "FAILED/PERMANENT_FAILED"
    assert run(conn, BEGAN + timedelta(hours=3)) == (0, 0)


@pytest.mark.req("E-04", "E-11")
@pytest.mark.seed("000", "Retry count and timestamps remain consistent for audit.")
def test_three_attempts_in_all_and_the_retry_count_follows_the_attempts(conn: Conn) -> None:
    """The document counts retries in up to three places."""
    id = upload(conn, 1).files[0]
    at = BEGAN
    counted = []
    for _ in range(3):
        attempt(conn, id, "503", at)
        counted.append((artifact(conn, id).attempt_count, artifact(conn, id).retry_count))
        at += timedelta(minutes=10)
        run(conn, at)
    assert counted == [(1, 0), (2, 1), (3, 2)]
    assert status(conn, id) == "FAILED/PERMANENT_FAILED"
    assert not artifact(conn, id).is_retryable
    assert len(events(conn, FAILED_REQUESTS)) == 2
    assert eligible(conn, [id], at) == {}


@pytest.mark.req("E-11")
def test_the_scope_is_a_job_and_the_batch_is_bounded(conn: Conn) -> None:
    jobs = [upload(conn, 1, 1, 1) for _ in range(2)]
    for id in [id for job in jobs for id in job.files]:
        attempt(conn, id, "503")
    assert run(conn, job=jobs[0].job, limit=2) == (2, 2)
    assert {event["file_job_id"] for event in events(conn, FAILED_REQUESTS)} == {str(jobs[0].job)}
    assert run(conn) == (4, 4)


@pytest.mark.req("E-03")
@pytest.mark.seed("000", "Outbox requeue duplicates")
def test_an_event_that_led_to_no_attempt_is_sent_again_and_a_file_under_way_is_not(conn: Conn) -> None:
    lost, flying = upload(conn, 1), upload(conn, 1)
    for job in (lost, flying):
        attempt(conn, job.files[0], "503")
    assert run(conn) == (2, 2)
    begin(conn, flying.files[0], LATER)
    assert run(conn, LATER + timedelta(minutes=29)) == (0, 0)
    assert run(conn, LATER + timedelta(minutes=31)) == (1, 1)
    assert status(conn, lost.files[0]) == "FAILED/RETRY_SCHEDULED"
    assert status(conn, flying.files[0]) == "FAILED/RETRYING"


@pytest.mark.req("E-03")
def test_nothing_is_requeued_while_the_breaker_of_the_case_api_is_open(conn: Conn) -> None:
    uploaded = upload(conn, 1)
    attempt(conn, uploaded.files[0], "503")
    conn.execute(
        "INSERT INTO redrive.destination (name, breaker, breaker_until) VALUES ('case-api', 'open', %s)",
        (LATER + timedelta(minutes=1),),
    )
    assert one(conn, QUERY, None, 200, LATER).is_breaker_open
    assert status(conn, uploaded.files[0]) == "FAILED/RETRY_FAILED"
    assert run(conn, LATER + timedelta(minutes=2)) == (1, 1)  # half open: a retry is its probe


@pytest.mark.req("E-03")
def test_schedulers_at_once_send_one_event_for_each_row(evidence: str, conn: Conn) -> None:
    uploaded = upload(conn, *[1] * 20)
    for id in uploaded.files:
        attempt(conn, id, "503")
    start = Barrier(4)

    def look() -> int:
        with connect(evidence) as own:
            start.wait()
            return run(own)[0]

    with ThreadPoolExecutor(4) as pool:
        found = sum(future.result() for future in [pool.submit(look) for _ in range(4)])
    found += run(conn)[0]
    assert found == 20
    rows = [event["file_job_row_id"] for event in events(conn, FAILED_REQUESTS)]
    assert len(rows) == len(set(rows)) == 20


@pytest.mark.req("E-03", "E-07")
@pytest.mark.seed("000", "Volume throttling controls are applied (batch, delay).")
async def test_a_run_goes_in_batches_with_pauses_and_leaves_its_measures(evidence: str, conn: Conn) -> None:
    began = datetime.now(UTC) - timedelta(minutes=30)
    uploaded = upload(conn, *[1] * 5, at=began)
    for id in uploaded.files:
        attempt(conn, id, "503", began)
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    settings = EvidenceSettings(batch_size_rows=2)
    async with open_database(evidence) as database:
        done = await schedule(database, settings, rng=random.Random(1), sleep=sleep)
    assert (done.rows, done.artifacts, done.batches) == (5, 5, 3)
    assert len(pauses) == 2
    assert all(2 <= pause <= 5 for pause in pauses)
    ran = one(conn, "SELECT * FROM redrive_evidence.scheduler")
    assert (ran.batch_size, ran.breaker_open_count) == (5, 0)


@pytest.mark.req("E-11")
def test_an_operator_retries_a_job_before_it_is_due(conn: Conn) -> None:
    uploaded = upload(conn, 1)
    attempt(conn, uploaded.files[0], "503")
    query = "SELECT * FROM redrive_evidence.retry_job_1('default', %s, 'ada', 'the API is back', p_now => %s)"
    done = one(conn, query, uploaded.job, BEGAN)
    assert (done.result, done.rows_scheduled, done.artifacts_scheduled) == ("done", 1, 1)
    assert eligible(conn, uploaded.files, BEGAN) == {uploaded.files[0]: 2}
    assert events(conn, FAILED_REQUESTS)[0]["retry_reason"] == "MANUAL_RETRY by ada: the API is back"
    other = query.replace("'default'", "'another'")
    assert one(conn, other, uploaded.job, BEGAN).result == "not_found"


# the indexes of the document


INDEXES = {
    "idx_artifact_retry_scan": "SELECT a.* FROM redrive_evidence.file_job_artifact a"
    " WHERE a.retry_status IN ('PENDING', 'RETRY_FAILED') AND a.retry_count < 2 AND a.next_retry_at <= '2020-02-01'",
    "idx_artifact_retry_cover": "SELECT a.id, a.file_job_row_id, a.s3_key, a.case_id"
    " FROM redrive_evidence.file_job_artifact a"
    " WHERE a.retry_status IN ('PENDING', 'RETRY_FAILED') AND a.retry_count < 2 AND a.next_retry_at <= '2020-02-01'",
    "idx_artifact_by_job_row": "SELECT * FROM redrive_evidence.file_job_artifact a"
    " WHERE a.file_job_id = '{job}' AND a.file_job_row_id = '{row}'",
}


@pytest.mark.req("E-11")
@pytest.mark.parametrize("index", INDEXES)
def test_the_index_of_the_document_serves_its_query(conn: Conn, index: str) -> None:
    for _ in range(3):
        uploaded = upload(conn, *[40] * 25)
        conn.execute(
            "UPDATE redrive_evidence.file_job_artifact SET attachment_status = 'FAILED', attachment_error_code = '503',"
            " retry_status = 'RETRY_FAILED', attempt_count = 1,"
            " next_retry_at = '2020-01-01'::timestamptz + random() * interval '2000 days' WHERE file_job_id = %s",
            (uploaded.job,),
        )
    conn.execute("VACUUM ANALYZE redrive_evidence.file_job_artifact")
    # Ids that are there: of those that are not, no index is expected to find fewer than another.
    query = INDEXES[index].format(job=uploaded.job, row=uploaded.rows[0])
    plan = json.dumps(every(conn, f"EXPLAIN (FORMAT json) {query}")[0][0])
    assert f'"Index Name": "{index}"' in plan
    assert "Seq Scan" not in plan
    if index == "idx_artifact_retry_cover":
        assert "Index Only Scan" in plan


# settings


@pytest.mark.req("E-04", "E-11")
def test_the_settings_have_the_names_and_defaults_of_the_document() -> None:
    assert dict(EvidenceSettings().documented()) == {
        "evidence-retry.max-attempts": 3,
        "evidence-retry.initial-delay": "300s",
        "evidence-retry.multiplier": 2.0,
        "evidence-retry.max-delay": "3600s",
        "evidence-retry.jitter-pct": 0.2,
        "batch_size_rows": 200,
        "sleep_between_batches": "2–5s",
    }
    read = read_settings(
        {
            "max-attempts": 2,
            "backoff": {"strategy": "exponential", "initial-delay": "10s", "max-delay": "1m", "jitter-pct": 0.1},
            "batch_size_rows": 7,
            "sleep_between_batches": ["1s", "2s"],
        }
    )
    assert (read.max_attempts, read.initial_delay_seconds, read.max_delay_seconds) == (2, 10.0, 60.0)
    assert (read.batch_size_rows, read.sleep_between_batches_seconds) == (7, (1.0, 2.0))


@pytest.mark.req("E-11")
@pytest.mark.parametrize(
    "wrong",
    [
        {"max-attempts": 4},
        {"max-attempts": 0},
        {"initial-delay": "5 parsecs"},
        {"initial-delay": "2h"},  # above max-delay
        {"multiplier": 0.5},
        {"jitter-pct": 0.6},
        {"batch_size_rows": 0},
        {"sleep_between_batches": ["5s", "2s"]},
        {"sleep_between_batches": ["5s"]},
        {"backoff": {"strategy": "linear"}},
        {"max_tries": 3},
    ],
)
def test_a_setting_out_of_its_bounds_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        read_settings(wrong)


@pytest.mark.req("E-04")
def test_the_delay_doubles_from_five_minutes_to_an_hour_with_a_fifth_of_jitter() -> None:
    settings, rng = EvidenceSettings(), random.Random(7)
    for number, wanted in ((1, 300), (2, 600), (3, 1200)):
        delays = [settings.delay_seconds(number, rng) for _ in range(200)]
        assert 0.8 * wanted <= min(delays) < 0.85 * wanted
        assert 1.15 * wanted < max(delays) <= 1.2 * wanted
    for number in (5, 9):  # 4,800 seconds and more: the longest delay is the bound of what comes out
        assert {settings.delay_seconds(number, rng) for _ in range(200)} == {3600}
