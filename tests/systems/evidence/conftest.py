"""A database with the tables of evidence, uploads without files, and attempts as a worker makes them."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.rows import namedtuple_row

from tests.support.databases import fresh_database

DIGEST = "0" * 64
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
NAMED = "SELECT * FROM redrive_evidence.file_job_artifact WHERE id = %s"


@pytest.fixture
def evidence(server_dsn: str, template: str) -> Iterator[str]:
    """The DSN of the test's own database: gates and scheduler look at all jobs."""
    with fresh_database(server_dsn, template=template) as dsn:
        yield dsn


@pytest.fixture
def conn(evidence: str) -> Iterator[psycopg.Connection[Any]]:
    """In autocommit mode, with rows by name."""
    with connect(evidence) as opened:
        yield opened


def connect(dsn: str) -> psycopg.Connection[Any]:
    return psycopg.connect(dsn, autocommit=True, row_factory=namedtuple_row)


@dataclass(frozen=True)
class Upload:
    """artifacts: of each row, in the order of the CSV."""

    job: UUID
    rows: Sequence[UUID]
    cases: Sequence[UUID]
    artifacts: Sequence[Sequence[UUID]]

    @property
    def files(self) -> list[UUID]:
        return [one for row in self.artifacts for one in row]


def upload(conn: psycopg.Connection[Any], *files: int, at: datetime | None = BEGAN, **job: Any) -> Upload:
    """A job with so many files in each row. A file's name tells its row and place: `1-2.pdf`."""
    rows: list[dict[str, Any]] = [
        {
            "file_job_row_id": str(uuid4()),
            "row_number": number,
            "case_id": str(uuid4()),
            "artifacts": [
                {
                    "artifact_id": str(uuid4()),
                    "file_name": f"{number}-{place}.pdf",
                    "file_type": "application/pdf",
                    "file_size_bytes": 9,
                    "s3_key": f"s3://evidence/{number}/{place}.pdf",
                    "sha256": DIGEST,
                }
                for place in range(1, count + 1)
            ],
        }
        for number, count in enumerate(files, 1)
    ]
    values = {
        "file_job_id": str(uuid4()),
        "idempotency_key": f"upload {secrets.token_hex(4)}",
        "merchant_id": "shop-7",
        "notify_mail": "ada@example.org",
        "archive_name": "evidence.zip",
        "archive_sha256": DIGEST,
        "archive_size_bytes": 100,
        **job,
    }
    query = "SELECT * FROM redrive_evidence.insert_upload_1('default', %s::json, %s::json, NULL, %s)"
    done = one(conn, query, json.dumps(values), json.dumps(rows), at)
    assert done.result == "new"
    return Upload(
        done.file_job_id,
        [UUID(row["file_job_row_id"]) for row in rows],
        [UUID(row["case_id"]) for row in rows],
        [[UUID(file["artifact_id"]) for file in row["artifacts"]] for row in rows],
    )


def one(conn: psycopg.Connection[Any], query: str, *values: Any) -> Any:
    return conn.execute(query.encode(), values).fetchone()


def every(conn: psycopg.Connection[Any], query: str, *values: Any) -> list[Any]:
    return conn.execute(query.encode(), values).fetchall()


def artifact(conn: psycopg.Connection[Any], id: UUID) -> Any:
    return one(conn, NAMED, id)


def status(conn: psycopg.Connection[Any], id: UUID) -> str:
    found = artifact(conn, id)
    return f"{found.attachment_status}/{found.retry_status}"


def eligible(conn: psycopg.Connection[Any], ids: Sequence[UUID], at: datetime = BEGAN) -> dict[UUID, int]:
    """The number of the attempt, by artifact."""
    query = "SELECT * FROM redrive_evidence.eligible_artifacts_1(%s, 3, 86400, %s)"
    return {row.artifact_id: row.attempt for row in every(conn, query, list(ids), at)}


def begin(conn: psycopg.Connection[Any], id: UUID, at: datetime = BEGAN) -> UUID:
    """The id of the message that makes the attempt."""
    message = uuid4()
    number = eligible(conn, [id], at)[id]
    conn.execute("SELECT redrive_evidence.begin_attempt_1(%s, %s, %s, %s)", (id, number, message, at))
    return message


def record(
    conn: psycopg.Connection[Any], message: UUID, code: str | None = None, at: datetime = BEGAN, **other: Any
) -> str:
    """code: None = it was attached."""
    outcome = "ATTACHED" if code is None else "FAILED"
    query = (
        "SELECT redrive_evidence.record_attempt_1(%s, %s, %s, p_reference => %s, p_delay_seconds => %s, p_now => %s)"
        " AS done"
    )
    reference = "attachment-1" if code is None else None
    return str(one(conn, query, message, outcome, code, reference, other.get("delay", 300), at).done)


def attempt(conn: psycopg.Connection[Any], id: UUID, code: str | None = None, at: datetime = BEGAN) -> UUID:
    message = begin(conn, id, at)
    assert record(conn, message, code, at) == "recorded"
    return message


def events(conn: psycopg.Connection[Any], destination: str) -> list[Any]:
    """The payloads that were enqueued there, oldest first."""
    query = "SELECT convert_from(body, 'UTF8')::json AS said FROM redrive.message WHERE destination = %s ORDER BY id"
    return [row.said for row in every(conn, query, destination)]
