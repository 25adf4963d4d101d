"""Errors of the document that the rulings name: its own SQL beside ours, so that none of them comes back.

Other rulings are tested where their subject is: 6 and 8 in test_case_api.py, 7 and 10 in test_gates.py, 9 and 11 in
test_consumers.py.
"""

from __future__ import annotations

from datetime import timedelta
from itertools import product
from typing import Any
from uuid import UUID

import psycopg
import pytest

from redrive.systems.evidence.gates import batches_of
from redrive.systems.evidence.settings import EvidenceSettings
from tests.systems.evidence.conftest import BEGAN, artifact, attempt, begin, eligible, every, one, status, upload

Conn = psycopg.Connection[Any]
# §1.1 of the document, of the columns that matter.
DOCUMENT_TABLE = """
CREATE TEMPORARY TABLE file_job_artifact (
    attachment_error_code varchar(64), retry_count int NOT NULL DEFAULT 0,
    error_category varchar(20) GENERATED ALWAYS AS (
        CASE WHEN attachment_error_code IN ('ATTACHMENT_API_TIMEOUT', '503', 'NETWORK_TIMEOUT') THEN 'NETWORK'
             ELSE 'SYSTEM' END) STORED,
    is_retryable boolean GENERATED ALWAYS AS (error_category IN ('NETWORK', 'SYSTEM') AND retry_count < 2) STORED)
"""
# §1.1: its CASE ends in ELSE 'SYSTEM', so a file without a code counts as one that may be tried again.
_RETRYABLE = """
(CASE WHEN attachment_error_code IN ('ATTACHMENT_API_TIMEOUT', '503', 'NETWORK_TIMEOUT') THEN 'NETWORK'
      WHEN attachment_error_code IN ('500', 'SYSTEM_ERROR') THEN 'SYSTEM'
      WHEN attachment_error_code IN ('CORRUPTED_FILE', 'INVALID_FORMAT', 'S3_NOT_FOUND') THEN 'DATA'
      WHEN attachment_error_code IN ('401', '403', 'UNAUTHORIZED', 'CASE_NOT_FOUND') THEN 'AUTH'
      ELSE 'SYSTEM' END) IN ('NETWORK', 'SYSTEM') AND retry_count < 2
"""
# §5, N2.
DOCUMENT_SETTLED = f"""
SELECT count(*) = 0 AS settled FROM redrive_evidence.file_job_artifact
 WHERE file_job_id = %s AND {_RETRYABLE} AND retry_status IN ('PENDING', 'RETRY_FAILED', 'RETRY_SCHEDULED', 'RETRYING')
"""
# §3.
DOCUMENT_CHOICE = """
SELECT id FROM redrive_evidence.file_job_artifact
 WHERE file_job_row_id = %s AND attachment_status <> 'ATTACHED'
   AND attachment_error_code NOT IN ('CORRUPTED_FILE', 'INVALID_FORMAT') AND retry_count < 2
"""
# Rule 0 of §4: only what is attached already is left out.
DOCUMENT_FILTER = (
    "SELECT id FROM redrive_evidence.file_job_artifact WHERE file_job_row_id = %s AND attachment_status <> 'ATTACHED'"
)
GENERATED = """
SELECT a.attname AS name, a.attgenerated AS kind, pg_get_expr(d.adbin, d.adrelid) AS expression
  FROM pg_attribute a JOIN pg_attrdef d ON (d.adrelid, d.adnum) = (a.attrelid, a.attnum)
 WHERE a.attrelid = 'redrive_evidence.file_job_artifact'::regclass AND a.attgenerated <> ''
"""
ROW = "SELECT * FROM redrive_evidence.file_job_row WHERE id = %s"


def chosen(conn: Conn, query: str, row: UUID) -> set[UUID]:
    return {found.id for found in every(conn, query, row)}


@pytest.mark.req("E-05")
def test_1_the_table_of_the_document_cannot_be_made_and_ours_refers_to_no_generated_column(conn: Conn) -> None:
    with pytest.raises(psycopg.errors.InvalidObjectDefinition, match="generated column"):
        conn.execute(DOCUMENT_TABLE)
    generated = {column.name: column.expression for column in every(conn, GENERATED)}
    assert {"error_category", "is_retryable", "retry_count"} <= set(generated)
    for name, expression in generated.items():
        assert not [other for other in generated if other != name and other in expression], (name, expression)


@pytest.mark.req("E-11")
def test_2_nothing_but_the_number_of_attempts_sets_the_retry_count(conn: Conn) -> None:
    id = upload(conn, 1).files[0]
    with pytest.raises(psycopg.errors.GeneratedAlways):
        conn.execute("UPDATE redrive_evidence.file_job_artifact SET retry_count = retry_count + 1 WHERE id = %s", (id,))
    for attempts, retries in ((0, 0), (1, 0), (2, 1), (3, 2)):
        conn.execute("UPDATE redrive_evidence.file_job_artifact SET attempt_count = %s WHERE id = %s", (attempts, id))
        assert artifact(conn, id).retry_count == retries


@pytest.mark.req("E-03")
def test_3_a_file_without_a_code_is_chosen_by_its_status(conn: Conn) -> None:
    uploaded = upload(conn, 1)
    assert chosen(conn, DOCUMENT_CHOICE, uploaded.rows[0]) == set()  # NULL NOT IN (…) is not true
    assert eligible(conn, uploaded.files) == {uploaded.files[0]: 1}


@pytest.mark.req("E-06")
def test_4_files_that_attached_at_once_do_not_keep_n2_back(conn: Conn) -> None:
    uploaded = upload(conn, 2, at=None)
    for id in uploaded.files:
        attempt(conn, id, at=one(conn, "SELECT now() AS at").at)
    assert not one(conn, DOCUMENT_SETTLED, uploaded.job).settled
    with conn.transaction():
        assert list(batches_of(EvidenceSettings()).decide(conn, uploaded.job)) == ["N1", "N2"]


@pytest.mark.req("E-10")
@pytest.mark.parametrize(("attached", "failed", "untried"), [*product(range(3), repeat=3)])
def test_5_a_row_with_an_untried_file_is_pending(conn: Conn, attached: int, failed: int, untried: int) -> None:
    uploaded = upload(conn, attached + failed + untried)
    for place, id in enumerate(uploaded.files[: attached + failed]):
        attempt(conn, id, None if place < attached else "503")
    row = one(conn, ROW, uploaded.rows[0])
    if untried:
        wanted = "PENDING"
    elif not failed:
        wanted = "COMPLETED"  # also without a file
    else:
        wanted = "PARTIALLY_FAILED" if attached else "FAILED"
    assert (row.evidence_status, row.evidence_completed_at is not None) == (wanted, wanted == "COMPLETED")


@pytest.mark.req("E-03", "E-04")
def test_9_what_may_not_be_tried_any_more_is_left_out_not_only_what_is_attached(conn: Conn) -> None:
    uploaded = upload(conn, 4)
    attached, permanent, exhausted, due = uploaded.files
    attempt(conn, attached)
    attempt(conn, permanent, "401")
    at = BEGAN
    for _ in range(2):
        attempt(conn, exhausted, "503", at)
        if at == BEGAN:
            attempt(conn, due, "503", at)
        at += timedelta(minutes=20)
        one(conn, "SELECT * FROM redrive_evidence.schedule_retries_1(p_force => true, p_now => %s)", at)
    attempt(conn, exhausted, "503", at)
    assert status(conn, exhausted) == "FAILED/PERMANENT_FAILED"
    assert chosen(conn, DOCUMENT_FILTER, uploaded.rows[0]) == {permanent, exhausted, due}
    assert eligible(conn, uploaded.files, at) == {due: 2}
    begin(conn, due, at)
    assert eligible(conn, uploaded.files, at) == {}  # nor what is under way


@pytest.mark.req("E-11")
def test_12_generated_columns_are_stored_on_every_server(conn: Conn) -> None:
    """PostgreSQL 18 makes them virtual unless it is told, and no index can then use them."""
    assert {column.name: column.kind for column in every(conn, GENERATED)} == {
        "retry_count": "s",
        "error_category": "s",
        "is_retryable": "s",
    }
