"""What the console shows of evidence: jobs, rows, artifacts, and what happened in its order."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from redrive.system import View, headings

_READS: Final = files("redrive.systems.evidence") / "sql" / "reads"

VIEWS: Final = {
    "jobs": View(
        title="Evidence",
        lead="Each uploaded archive, and how many of its files are attached to their cases.",
        sql=_READS / "jobs_view.sql",
        columns=headings(
            "archive_name progress merchant_id rows attached created_at file_job_id",
            archive_name="Archive",
            created_at="Uploaded",
            file_job_id="Job",
        ),
        position="file_job_id",
        state="progress",
        search="Merchant, archive or job",
        nothing="An archive is here as soon as its upload has ended.",
    ),
    "rows": View(
        title="Evidence rows",
        lead="Each case of an archive. Search for a job or a case to see its rows only.",
        sql=_READS / "rows_view.sql",
        columns=headings(
            "case_id evidence_status row_number attached evidence_failed_count file_job_id",
            evidence_status="Status",
            row_number="Line",
            evidence_failed_count="Failed",
            file_job_id="Job",
        ),
        position="file_job_row_id",
        state="evidence_status",
        search="Job or case",
        nothing="Rows are here as soon as an archive is uploaded.",
    ),
    "artifacts": View(
        title="Evidence files",
        lead="Each file of an archive, how it stands and why it failed. The message is that of its last attempt.",
        sql=_READS / "artifacts_view.sql",
        columns=headings(
            "file_name attachment_status retry_status retry_count error_code next_retry_at file_job_id",
            file_name="File",
            attachment_status="Status",
            retry_status="Retry",
            retry_count="Retries",
            file_job_id="Job",
        ),
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
        columns=headings(
            "what outcome error_code file_name file_job_id at", file_name="File", file_job_id="Job", at="When"
        ),
        position="message_id",
        state="outcome",
        message="message_id",
        search="Job, case or artifact",
        nothing="An upload makes the first entries.",
    ),
}
