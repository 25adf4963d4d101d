"""An operator asks for the retries of a job: the statement, and why it may be refused. SQL: `schedule.sql`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, LiteralString
from uuid import UUID

RETRY: Final[LiteralString] = (
    "SELECT result, rows_scheduled, artifacts_scheduled"
    " FROM redrive_evidence.retry_job_1(%s::text, %s::uuid, %s::text, %s::text)"
)
_REFUSALS: Final[Mapping[str, str]] = {
    "closed": "The job {job} is closed: its final summary is sent. New evidence is a new upload.",
    "nothing_to_retry": "No file of job {job} has failed for a reason that may pass and has attempts left.",
    "case_api_down": "The Case API is down: its breaker is open. Files are requeued when it is back.",
}


def refusal_of(result: str, job: UUID) -> str:
    return _REFUSALS[result].format(job=job)
