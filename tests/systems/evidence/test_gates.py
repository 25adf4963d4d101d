"""N1 and N2: when each is sent, that it is sent once, and what a deadline does (E-06, E-12)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Barrier
from typing import Any
from uuid import UUID

import psycopg
import pytest

from redrive.systems.evidence.gates import batches_of
from redrive.systems.evidence.settings import EvidenceSettings
from tests.support.racing import is_waiting
from tests.support.waiting import wait_until
from tests.systems.evidence.conftest import (
    Upload,
    artifact,
    attempt,
    begin,
    connect,
    eligible,
    every,
    one,
    record,
    status,
    upload,
)

Conn = psycopg.Connection[Any]
SETTINGS = EvidenceSettings()
NOTICES = "SELECT * FROM redrive_evidence.notice WHERE file_job_id = %s ORDER BY created_at, notice"


def decide(conn: Conn, job: UUID, settings: EvidenceSettings = SETTINGS) -> list[str]:
    with conn.transaction():
        return list(batches_of(settings).decide(conn, job))


def now() -> datetime:
    return datetime.now(UTC)


def ago(**span: float) -> datetime:
    return now() - timedelta(**span)


def notices(conn: Conn, job: UUID) -> list[Any]:
    return every(conn, NOTICES, job)


def requeue(conn: Conn, *, at: datetime, force: bool = True) -> int:
    query = "SELECT * FROM redrive_evidence.schedule_retries_1(p_force => %s, p_now => %s)"
    return int(one(conn, query, force, at).artifacts_scheduled)


@pytest.fixture
def uploaded(conn: Conn) -> Upload:
    return upload(conn, 2, at=ago(hours=1))


@pytest.mark.req("E-06")
def test_all_attached_at_the_first_attempt_sends_both_notices_n1_first(conn: Conn, uploaded: Upload) -> None:
    """The document's gate counts them as retryable, and would never send N2."""
    assert decide(conn, uploaded.job) == []
    for id in uploaded.files:
        attempt(conn, id, at=now())
    assert decide(conn, uploaded.job) == ["N1", "N2"]
    assert [(row.notice, row.channel) for row in notices(conn, uploaded.job)] == [("N1", "mail"), ("N2", "mail")]
    assert one(conn, "SELECT closed FROM redrive_evidence.file_job WHERE id = %s", uploaded.job).closed


@pytest.mark.req("E-06")
def test_n1_waits_for_an_outcome_of_every_file_not_for_a_beginning(conn: Conn, uploaded: Upload) -> None:
    first, second = uploaded.files
    attempt(conn, first, at=now())
    message = begin(conn, second, at=now())
    assert decide(conn, uploaded.job) == []
    record(conn, message, "503", at=now())
    assert decide(conn, uploaded.job) == ["N1"]


@pytest.mark.req("E-06")
def test_an_upload_without_files_is_told_and_closed(conn: Conn) -> None:
    empty = upload(conn, 0, at=now())
    assert decide(conn, empty.job) == ["N1", "N2"]
    assert [row.summary["total"] for row in notices(conn, empty.job)] == [0, 0]


@pytest.mark.req("E-06", "E-12")
def test_n2_waits_for_retries_and_counts_what_they_recovered(conn: Conn, uploaded: Upload) -> None:
    good, bad = uploaded.files
    attempt(conn, good, "503", at=ago(minutes=30))
    attempt(conn, bad, "CORRUPTED_FILE", at=ago(minutes=30))
    assert decide(conn, uploaded.job) == ["N1"]
    first = notices(conn, uploaded.job)[0].summary
    assert (first["attached"], first["waiting"], first["permanent_failed"]) == (0, 1, 1)
    assert first["retried_until"] is not None
    assert requeue(conn, at=now()) == 1
    assert decide(conn, uploaded.job) == []  # scheduled
    message = begin(conn, good, at=now())
    assert decide(conn, uploaded.job) == []  # under way
    record(conn, message, at=now())
    assert status(conn, good) == "ATTACHED/RETRY_SUCCESS"
    assert decide(conn, uploaded.job) == ["N2"]
    last = notices(conn, uploaded.job)[1].summary
    assert (last["total"], last["attached"], last["recovered_by_retry"], last["permanent_failed"]) == (2, 1, 1, 1)
    assert [(e["error_code"], e["files"]) for e in last["errors"]] == [("CORRUPTED_FILE", 1)]
    assert [file["cannot_retry"] for file in last["failed_files"]] == [True]


@pytest.mark.req("E-06")
def test_a_third_failure_settles(conn: Conn) -> None:
    single = upload(conn, 1, at=ago(hours=1))
    id = single.files[0]
    attempt(conn, id, "503", at=ago(minutes=50))
    for minutes in (40, 30):
        requeue(conn, at=ago(minutes=minutes))
        attempt(conn, id, "503", at=ago(minutes=minutes))
    assert status(conn, id) == "FAILED/PERMANENT_FAILED"
    assert (artifact(conn, id).attempt_count, artifact(conn, id).retry_count) == (3, 2)
    assert decide(conn, single.job) == ["N1", "N2"]


@pytest.mark.req("E-06")
def test_untried_files_are_given_up_a_day_after_the_seal(conn: Conn) -> None:
    late = upload(conn, 2, at=ago(hours=24, seconds=1))
    tried, untried = late.files
    attempt(conn, tried, at=ago(hours=20))
    assert eligible(conn, late.files, at=now()) == {}
    assert decide(conn, late.job) == ["N1", "N2"]
    assert artifact(conn, untried).attachment_error_code == "NOT_ATTEMPTED"
    assert not artifact(conn, untried).is_retryable
    assert notices(conn, late.job)[1].summary["permanent_failed"] == 1


def _overdue(conn: Conn, *codes: str) -> Upload:
    """N1 was sent 24 h and a second ago; a retry of the last file was begun before."""
    job = upload(conn, len(codes), at=ago(hours=30))
    for id, code in zip(job.files, codes, strict=True):
        attempt(conn, id, code, at=ago(hours=29))
    conn.execute(
        "UPDATE redrive_evidence.file_job SET n1_sent_at = %s WHERE id = %s", (ago(hours=24, seconds=1), job.job)
    )
    return job


@pytest.mark.req("E-06")
def test_a_day_after_n1_the_rest_is_given_up(conn: Conn) -> None:
    job = _overdue(conn, "503", "500")
    assert requeue(conn, at=now()) == 0  # no attempt starts any more
    assert decide(conn, job.job) == ["N2"]
    assert {status(conn, id) for id in job.files} == {"FAILED/PERMANENT_FAILED"}
    assert artifact(conn, job.files[0]).attachment_error_code == "503"
    assert one(conn, "SELECT n2_forced FROM redrive_evidence.file_job WHERE id = %s", job.job).n2_forced


@pytest.mark.req("E-06")
def test_beyond_the_deadline_an_attempt_under_way_is_awaited(conn: Conn) -> None:
    job = _overdue(conn, "503", "500")
    requeue(conn, at=ago(hours=25))
    message = begin(conn, job.files[1], at=ago(hours=25))
    assert decide(conn, job.job) == []
    assert status(conn, job.files[0]) == "FAILED/PERMANENT_FAILED"
    assert record(conn, message, at=now()) == "recorded"
    assert decide(conn, job.job) == ["N2"]
    assert notices(conn, job.job)[0].summary["recovered_by_retry"] == 1


@pytest.mark.req("E-06")
def test_what_is_never_answered_is_awaited_for_a_while_only_and_a_later_success_is_late(conn: Conn) -> None:
    job = _overdue(conn, "503")
    requeue(conn, at=ago(hours=25))
    message = begin(conn, job.files[0], at=ago(hours=25))
    assert decide(conn, job.job) == []
    assert decide(conn, job.job, EvidenceSettings(in_flight_seconds=0)) == ["N2"]
    assert artifact(conn, job.files[0]).attachment_error_code == "OUTCOME_UNKNOWN"
    assert record(conn, message, at=now()) == "late"
    assert status(conn, job.files[0]) == "FAILED/PERMANENT_FAILED"
    assert one(conn, "SELECT count(*) AS n FROM redrive_evidence.late_evidence").n == 1
    assert decide(conn, job.job) == []


@pytest.mark.req("E-06")
def test_giving_up_at_the_deadline_is_a_setting(conn: Conn) -> None:
    job = _overdue(conn, "503")
    assert decide(conn, job.job, EvidenceSettings(give_up_at_deadline=False)) == ["N2"]
    assert status(conn, job.files[0]) == "FAILED/RETRY_FAILED"
    assert notices(conn, job.job)[0].summary["waiting"] == 1


@pytest.mark.req("E-06")
@pytest.mark.seed("000", "New evidence arrives after N2")
def test_a_closed_upload_never_changes(conn: Conn, uploaded: Upload) -> None:
    for id in uploaded.files:
        attempt(conn, id, "CORRUPTED_FILE", at=now())
    decide(conn, uploaded.job)
    assert eligible(conn, uploaded.files, at=now()) == {}
    for change in (
        "UPDATE redrive_evidence.file_job SET n2_sent_at = NULL WHERE id = %s",
        "UPDATE redrive_evidence.file_job SET n1_sent_at = now() WHERE id = %s",
        "UPDATE redrive_evidence.file_job_artifact SET retry_status = 'RETRY_FAILED' WHERE file_job_id = %s",
        "UPDATE redrive_evidence.file_job_artifact SET file_name = 'another' WHERE file_job_id = %s",
    ):
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
            conn.execute(change.encode(), (uploaded.job,))
    more = upload(conn, 1, at=now())
    attempt(conn, more.files[0], at=now())
    assert decide(conn, more.job) == ["N1", "N2"]
    assert len(notices(conn, uploaded.job)) == len(notices(conn, more.job)) == 2


@pytest.mark.req("E-06")
def test_two_last_files_that_are_settled_at_once_and_four_deciders_send_each_notice_once(
    evidence: str, conn: Conn
) -> None:
    """The one that settles last does not see the other; the gates wait for both."""
    for _ in range(5):
        job = upload(conn, 2, at=ago(hours=1))
        messages = [begin(conn, id, at=now()) for id in job.files]
        start = Barrier(6)

        def settle(message: UUID, start: Barrier = start) -> list[str]:
            with connect(evidence) as own:
                start.wait()
                record(own, message, at=now())
            return []

        def look(job: UUID, start: Barrier = start) -> list[str]:
            with connect(evidence) as own:
                start.wait()
                return decide(own, job)

        with ThreadPoolExecutor(6) as pool:
            asked = [pool.submit(settle, one) for one in messages] + [pool.submit(look, job.job) for _ in range(4)]
            passed = [name for future in asked for name in future.result()]
        passed += decide(conn, job.job)
        assert passed == ["N1", "N2"]
        row = one(conn, "SELECT * FROM redrive_evidence.file_job_row WHERE file_job_id = %s", job.job)
        assert (row.evidence_attached_count, row.evidence_status) == (2, "COMPLETED")


@pytest.mark.req("E-06")
def test_a_decision_waits_for_an_outcome_that_is_being_recorded(evidence: str, conn: Conn) -> None:
    job = upload(conn, 1, at=ago(hours=1))
    message = begin(conn, job.files[0], at=now())
    with connect(evidence) as recording, connect(evidence) as deciding, ThreadPoolExecutor(1) as pool:
        with recording.transaction():
            record(recording, message, at=now())
            asked = pool.submit(decide, deciding, job.job)
            wait_until(lambda: asked.done() or is_waiting(conn, deciding), seconds=60, what="a decision")
            assert not asked.done()
        assert asked.result() == ["N1", "N2"]


@pytest.mark.req("E-06")
def test_a_notice_and_its_mark_are_one_transaction(conn: Conn, uploaded: Upload) -> None:
    for id in uploaded.files:
        attempt(conn, id, at=now())
    with conn.transaction(force_rollback=True):
        assert batches_of(SETTINGS).decide(conn, uploaded.job) == ["N1", "N2"]
    assert notices(conn, uploaded.job) == []
    sent = "SELECT count(*) AS n FROM redrive.message WHERE destination LIKE 'evidence.notice.%%'"
    assert one(conn, sent).n == 0
    decide(conn, uploaded.job)
    assert one(conn, sent).n == 2


@pytest.mark.req("E-10")
def test_roll_ups_are_rebuilt_from_the_files(conn: Conn, uploaded: Upload) -> None:
    attempt(conn, uploaded.files[0], at=now())
    conn.execute("UPDATE redrive_evidence.file_job_row SET evidence_attached_count = 7, evidence_status = 'FAILED'")
    batches = batches_of(SETTINGS)
    with conn.transaction():
        assert batches.rebuild(conn, uploaded.job) == 1
    row = one(conn, "SELECT * FROM redrive_evidence.file_job_row")
    assert (row.evidence_attached_count, row.evidence_status) == (1, "PENDING")
    with conn.transaction():
        assert batches.rebuild(conn, uploaded.job) == 0
