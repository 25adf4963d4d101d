"""The contracts of the events: what SQL writes is what is read, and anything else is refused, never guessed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from redrive import Terminal
from redrive.systems.evidence.events import SCHEMA_INVALID, read_request, read_result
from redrive.systems.evidence.names import (
    ARTIFACT_RESULT,
    ATTACH_REQUEST,
    ATTACH_REQUESTS,
    ATTACH_RESULTS,
    ATTACH_RETRY,
    FAILED_REQUESTS,
)
from tests.systems.evidence.attaching import retry, tried
from tests.systems.evidence.conftest import events, upload

pytestmark = pytest.mark.req("E-11")
Connection = psycopg.Connection[Any]
REMOVED = object()


def a_request(**other: Any) -> dict[str, Any]:
    """The example of the document, section 2.1, with real ids."""
    found = {
        "event_id": str(uuid4()),
        "event_type": ATTACH_RETRY,
        "occurred_at": "2025-10-08T10:33:00Z",
        "file_job_id": str(uuid4()),
        "file_job_row_id": str(uuid4()),
        "case_id": str(uuid4()),
        "artifacts": [
            {"artifact_id": str(uuid4()), "s3_key": "s3://evidence/file.jpg"},
            {"artifact_id": str(uuid4()), "s3_key": "s3://evidence/invoice.pdf"},
        ],
        "retry_reason": "AUTOMATED_RETRY",
        "schema_version": 1,
        **other,
    }
    return {name: value for name, value in found.items() if value is not REMOVED}


def a_result(**other: Any) -> dict[str, Any]:
    found = {
        "event_id": str(uuid4()),
        "event_type": ARTIFACT_RESULT,
        "occurred_at": "2025-10-08T10:33:00Z",
        "file_job_id": str(uuid4()),
        "file_job_row_id": str(uuid4()),
        "case_id": str(uuid4()),
        "artifact_id": str(uuid4()),
        "status": "FAILED",
        "error_code": "503",
        "error_category": "NETWORK",
        "attempt_count": 1,
        "retry_status": "RETRY_FAILED",
        "schema_version": 1,
        **other,
    }
    return {name: value for name, value in found.items() if value is not REMOVED}


def read(document: dict[str, Any]) -> Any:
    body = json.dumps(document).encode()
    return (
        read_result(body)
        if document.get("event_type") == ARTIFACT_RESULT
        else read_request(body, event_type=ATTACH_RETRY)
    )


def test_the_example_of_the_document_is_read() -> None:
    document = a_request(added_later="is left alone")
    found = read(document)
    assert (str(found.file_job_row_id), found.retry_reason) == (document["file_job_row_id"], "AUTOMATED_RETRY")
    assert [one.s3_key for one in found.artifacts] == ["s3://evidence/file.jpg", "s3://evidence/invoice.pdf"]


@pytest.mark.req("E-03", "E-10")
def test_what_is_written_is_what_is_read(conn: Connection) -> None:
    made = upload(conn, 2, at=None)
    (first,) = events(conn, ATTACH_REQUESTS)
    found = read_request(json.dumps(first).encode(), event_type=ATTACH_REQUEST)
    assert (found.file_job_id, found.file_job_row_id, found.case_id) == (made.job, made.rows[0], made.cases[0])
    assert {one.artifact_id for one in found.artifacts} == set(made.files)
    for id in made.files:
        tried(conn, id, "503" if id == made.files[0] else None)
    results = [read_result(json.dumps(one).encode()) for one in events(conn, ATTACH_RESULTS)]
    assert {(one.artifact_id, one.status, one.error_code, one.error_category) for one in results} == {
        (made.files[0], "FAILED", "503", "NETWORK"),
        (made.files[1], "ATTACHED", None, None),
    }
    retry(conn, made.files[:1])
    (again,) = events(conn, FAILED_REQUESTS)
    found = read_request(json.dumps(again).encode(), event_type=ATTACH_RETRY)
    assert ({one.artifact_id for one in found.artifacts}, found.retry_reason) == (set(made.files), "AUTOMATED_RETRY")


@pytest.mark.req("E-10")
@pytest.mark.parametrize("version", [2, 0, "1", 1.0, True, None, REMOVED])
@pytest.mark.parametrize("document", [a_request, a_result])
def test_a_version_that_is_not_known_is_never_guessed(document: Callable[..., dict[str, Any]], version: Any) -> None:
    assert read(document()) is not None
    with pytest.raises(Terminal) as refused:
        read(document(schema_version=version))
    assert refused.value.code == SCHEMA_INVALID
    assert "schema_version" in refused.value.text


@pytest.mark.parametrize(
    ("document", "changed", "said"),
    [
        (a_request, {"event_id": "7"}, "event_id must be a UUID"),
        (a_request, {"event_id": REMOVED}, "event_id must be a text"),
        (a_request, {"event_type": ATTACH_REQUEST}, f"event_type must be {ATTACH_RETRY} on this topic"),
        (a_request, {"artifacts": []}, "artifacts must be a list of 1 to 1000"),
        (a_request, {"artifacts": [7]}, "artifacts must hold objects"),
        (
            a_request,
            {"artifacts": [{"artifact_id": "x", "s3_key": "s3://a"}]},
            "artifacts[0].artifact_id must be a UUID",
        ),
        (a_request, {"artifacts": [{"artifact_id": str(UUID(int=1))}]}, "artifacts[0].s3_key must be a text"),
        (a_request, {"retry_reason": REMOVED}, "retry_reason must be a text"),
        (a_request, {"case_id": 7}, "case_id must be a text"),
        (a_result, {"status": "RETRYING"}, "status must be one of ATTACHED, FAILED"),
        (a_result, {"error_code": REMOVED}, "error_code must be a text"),
        (a_result, {"attempt_count": True}, "attempt_count must be a whole number"),
        (a_result, {"attempt_count": -1}, "attempt_count must be a whole number"),
    ],
)
def test_an_event_that_does_not_keep_its_contract_is_refused_and_the_field_is_named(
    document: Callable[..., dict[str, Any]], changed: dict[str, Any], said: str
) -> None:
    with pytest.raises(Terminal) as refused:
        read(document(**changed))
    assert (refused.value.code, said in refused.value.text) == (SCHEMA_INVALID, True), refused.value.text


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"7", b"\xff", b"[" * 100_000])
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    for reading in (read_result, lambda body: read_request(body, event_type=ATTACH_RETRY)):
        with pytest.raises(Terminal) as refused:
            reading(body)
        assert refused.value.code == SCHEMA_INVALID
