"""Upload, attempts, outcomes, roll-ups and result events: the one writer (E-01, E-02, E-09, E-10)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from redrive.systems.evidence.names import ATTACH_REQUESTS, ATTACH_RESULTS
from tests.systems.evidence.conftest import (
    BEGAN,
    artifact,
    attempt,
    begin,
    eligible,
    events,
    one,
    record,
    status,
    upload,
)

Conn = psycopg.Connection[Any]
ROW = "SELECT * FROM redrive_evidence.file_job_row WHERE id = %s"


@pytest.mark.req("E-01", "E-02", "E-11")
def test_an_upload_is_a_job_its_rows_its_files_and_the_first_event_of_each_row(conn: Conn) -> None:
    uploaded = upload(conn, 2, 0, 1)
    assert [event["file_job_row_id"] for event in events(conn, ATTACH_REQUESTS)] == [
        str(uploaded.rows[0]),
        str(uploaded.rows[2]),
    ]
    first = events(conn, ATTACH_REQUESTS)[0]
    assert first["event_type"] == "EVIDENCE_ATTACH_REQUEST"
    assert first["schema_version"] == 1
    assert {one["artifact_id"] for one in first["artifacts"]} == {str(id) for id in uploaded.artifacts[0]}
    assert one(conn, ROW, uploaded.rows[1]).evidence_status == "COMPLETED"
    assert one(conn, ROW, uploaded.rows[0]).evidence_status == "PENDING"


@pytest.mark.req("E-02", "E-10")
def test_an_outcome_writes_artifact_roll_ups_and_result_event_together(conn: Conn) -> None:
    uploaded = upload(conn, 2)
    good, bad = uploaded.files
    attempt(conn, good)
    attempt(conn, bad, "CORRUPTED_FILE")
    assert (status(conn, good), status(conn, bad)) == ("ATTACHED/PENDING", "FAILED/PERMANENT_FAILED")
    row = one(conn, ROW, uploaded.rows[0])
    assert (row.evidence_count, row.evidence_attached_count, row.evidence_failed_count) == (2, 1, 1)
    assert row.evidence_status == "PARTIALLY_FAILED"
    assert row.evidence_completed_at is None
    assert [(one["fileName"], one["errorCode"]) for one in row.evidence_failed_files] == [("1-2.pdf", "CORRUPTED_FILE")]
    assert [(one["artifact_id"], one["status"], one["error_code"]) for one in events(conn, ATTACH_RESULTS)] == [
        (str(good), "ATTACHED", None),
        (str(bad), "FAILED", "CORRUPTED_FILE"),
    ]


@pytest.mark.req("E-04")
def test_a_retryable_failure_waits_for_its_delay_and_for_the_scheduler(conn: Conn) -> None:
    uploaded = upload(conn, 1)
    id = uploaded.files[0]
    attempt(conn, id, "503")
    found = artifact(conn, id)
    assert status(conn, id) == "FAILED/RETRY_FAILED"
    assert found.next_retry_at == BEGAN + timedelta(minutes=5)
    assert (found.attempt_count, found.retry_count, found.error_category, found.is_retryable) == (1, 0, "NETWORK", True)
    # Due or not, only the scheduler starts another attempt: a redelivered first event does not.
    assert eligible(conn, [id], BEGAN + timedelta(hours=1)) == {}


@pytest.mark.req("E-10")
@pytest.mark.seed("000", "Case deleted mid-retry")
def test_a_case_that_is_gone_ends_its_other_files_without_a_call(conn: Conn) -> None:
    uploaded = upload(conn, 4, 1)
    first, attached, flying, untried = uploaded.artifacts[0]
    attempt(conn, attached)
    under_way = begin(conn, flying)
    attempt(conn, first, "CASE_NOT_FOUND")
    assert status(conn, untried) == "FAILED/PERMANENT_FAILED"
    assert artifact(conn, untried).attempt_count == 0
    assert status(conn, attached) == "ATTACHED/PENDING"
    assert status(conn, flying) == "PENDING/PENDING"  # its own answer decides
    assert status(conn, uploaded.artifacts[1][0]) == "PENDING/PENDING"
    assert eligible(conn, uploaded.files) == {uploaded.artifacts[1][0]: 1}
    assert record(conn, under_way, "CASE_NOT_FOUND") == "recorded"
    assert one(conn, ROW, uploaded.rows[0]).evidence_status == "PARTIALLY_FAILED"


def test_the_outcome_of_an_attempt_counts_once(conn: Conn) -> None:
    uploaded = upload(conn, 1)
    message = attempt(conn, uploaded.files[0], "503")
    assert record(conn, message, "503") == "known"
    assert record(conn, message) == "late"
    assert artifact(conn, uploaded.files[0]).attempt_count == 1
    assert one(conn, "SELECT count(*) AS n FROM redrive_evidence.late_evidence").n == 1


def test_one_attempt_is_under_way_at_a_time(conn: Conn) -> None:
    uploaded = upload(conn, 1)
    begin(conn, uploaded.files[0])
    assert eligible(conn, uploaded.files) == {}
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="cannot begin"):
        conn.execute("SELECT redrive_evidence.begin_attempt_1(%s, 1, gen_random_uuid())", (uploaded.files[0],))


@pytest.mark.req("E-06")
def test_nothing_is_added_to_a_sealed_upload(conn: Conn) -> None:
    uploaded = upload(conn, 1)
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="is sealed"):
        conn.execute(
            "INSERT INTO redrive_evidence.file_job_row (id, file_job_id, tenant, row_number, case_id, created_at)"
            " VALUES (gen_random_uuid(), %s, 'default', 9, gen_random_uuid(), now())",
            (uploaded.job,),
        )
