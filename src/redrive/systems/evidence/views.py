"""What the console shows of evidence: jobs, rows, artifacts, and what happened in its order."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from redrive.system import View

_READS: Final = files("redrive.systems.evidence") / "sql" / "reads"

VIEWS: Final = {
    "jobs": View(
        title="Evidence",
        lead="Each uploaded archive, and how many of its files are attached to their cases.",
        sql=_READS / "jobs_view.sql",
        columns={
            "archive_name": "Archive",
            "progress": "Progress",
            "merchant_id": "Merchant",
            "rows": "Rows",
            "attached": "Attached",
            "created_at": "Uploaded",
            "file_job_id": "Job",
        },
        position="file_job_id",
        state="progress",
        search="Merchant, archive or job",
        nothing="An archive is here as soon as its upload has ended.",
    ),
    "rows": View(
        title="Evidence rows",
        lead="Each case of an archive. Search for a job or a case to see its rows only.",
        sql=_READS / "rows_view.sql",
        columns={
            "case_id": "Case",
            "evidence_status": "Status",
            "row_number": "Line",
            "attached": "Attached",
            "evidence_failed_count": "Failed",
            "file_job_id": "Job",
        },
        position="file_job_row_id",
        state="evidence_status",
        search="Job or case",
        nothing="Rows are here as soon as an archive is uploaded.",
    ),
    "artifacts": View(
        title="Evidence files",
        lead="Each file of an archive, how it stands and why it failed. The message is that of its last attempt.",
        sql=_READS / "artifacts_view.sql",
        columns={
            "file_name": "File",
            "attachment_status": "Status",
            "retry_status": "Retry",
            "retry_count": "Retries",
            "error_code": "Error code",
            "next_retry_at": "Next retry",
            "file_job_id": "Job",
        },
        position="artifact_id",
        state="attachment_status",
        message="message_id",
        search="File, job or case",
        nothing="Files are here as soon as an archive is uploaded.",
    ),
    "timeline": View(
        title="Evidence timeline",
        lead="Requests, attempts, results and notices in their order, each with its message.",
        sql=_READS / "timeline_view.sql",
        columns={
            "what": "What",
            "outcome": "Outcome",
            "error_code": "Error code",
            "file_name": "File",
            "file_job_id": "Job",
            "at": "When",
        },
        position="message_id",
        state="outcome",
        message="message_id",
        search="Job, case or artifact",
        nothing="An upload makes the first entries.",
    ),
}
