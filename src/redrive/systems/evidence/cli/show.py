"""`redrive evidence show`: the jobs, or one job with its rows and, on request, its files and what happened; or what
happened to the files of a case.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

import click

from redrive.kit.cli import Call, Column, example, output, show_rows
from redrive.kit.database import Connection, Row
from redrive.systems.evidence.cli.shared import evidence_command
from redrive.systems.evidence.reads import SQL, no_job

_JOBS: Final = (
    Column("job"),
    Column("merchant", grow=True),
    Column("archive", grow=True),
    Column("progress"),
    Column("attached"),
    Column("uploaded"),
)
_ROWS: Final = (
    Column("line", "right"),
    Column("case"),
    Column("status"),
    Column("attached"),
    Column("failed", "right"),
)
_FILES: Final = (
    Column("artifact"),
    Column("file", grow=True),
    Column("attached"),
    Column("retry"),
    Column("attempts", "right"),
    Column("error"),
)
_EVENTS: Final = (Column("when"), Column("what"), Column("line", "right"), Column("file", grow=True), Column("outcome"))
_CASE_EVENTS: Final = (Column("job"), *_EVENTS, Column("retries", "right"))


@click.command(
    "show",
    epilog=example(
        "redrive evidence show",
        "redrive evidence show JOB --artifacts --timeline",
        "redrive evidence show --case 7d0c0a3e-6d3b-4f0e-9a0e-2f7a3c1b5e11",
    ),
)
@click.argument("job", type=click.UUID, required=False)
@click.option("--artifacts", is_flag=True, help="The files of the job, too.")
@click.option("--timeline", is_flag=True, help="What happened to the job, too, the newest first.")
@click.option("--case", type=click.UUID, help="Instead: requests, attempts and results of this case in all its jobs.")
@click.option("--before", type=click.UUID, help="What is behind this one, as `next` of the page before says.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Of each list.")
@evidence_command
def command(
    call: Call,
    conn: Connection,
    job: UUID | None,
    artifacts: bool,
    timeline: bool,
    case: UUID | None,
    before: UUID | None,
    limit: int,
    tenant: str,
) -> None:
    """Jobs, the newest first; with the id of a job, how its rows and files stand.

    progress: attaching until every file had its first attempt, then retrying, and closed once the final summary is
    sent.
    """
    named = {"tenant": tenant, "before": before, "limit": limit}
    if case is not None:
        if job is not None or artifacts or timeline:
            raise click.UsageError("--case goes with no job.", click.get_current_context())
        events = SQL.rows(conn, "case", {**named, "case_id": case})
        show_rows(call, "evidence_case", events, _CASE_EVENTS, _case_event, position="message_id", limit=limit)
        return
    if job is None:
        jobs = SQL.rows(conn, "jobs", named)
        show_rows(call, "evidence_jobs", jobs, _JOBS, _listed_job, position="file_job_id", limit=limit)
        return
    named["file_job_id"] = job
    found = SQL.rows(conn, "job", named)
    if not found:
        raise no_job(job)
    said: dict[str, Any] = {"job": found[0], "rows": SQL.rows(conn, "rows", {**named, "after": 0})}
    filters = {"file_job_row_id": None, "status": None, "after": None}
    said["artifacts"] = SQL.rows(conn, "artifacts", {**named, **filters}) if artifacts else None
    said["timeline"] = SQL.rows(conn, "timeline", {**named, "before": None}) if timeline else None
    if call.json:
        output.document("evidence_job", said)
    else:
        _job(said)


def _case_event(one: Row) -> tuple[object, ...]:
    return one["file_job_id"], *_event(one), one["retries"]


def _listed_job(one: Row) -> tuple[object, ...]:
    return (
        one["file_job_id"],
        one["merchant_id"],
        one["archive_name"],
        output.state(one["progress"]),
        f"{one['attached']} of {one['artifacts']}",
        output.short_moment(one["created_at"]),
    )


def _job(said: dict[str, Any]) -> None:
    job = said["job"]
    output.show(
        output.pairs(
            [
                ("job", job["file_job_id"]),
                ("merchant", job["merchant_id"]),
                ("archive", f"{job['archive_name']}, {job['archive_size_bytes']} bytes"),
                ("progress", output.state(job["progress"])),
                ("files", f"{job['attached']} of {job['artifacts']} attached, {job['failed']} failed"),
                ("uploaded", output.moment(job["created_at"])),
                ("N1", _when(job["n1_sent_at"])),
                ("N2", _when(job["n2_sent_at"])),
            ]
        ),
        output.table(_ROWS, [_row(one) for one in said["rows"]]),
    )
    if said["artifacts"] is not None:
        output.show(output.table(_FILES, [_file(one) for one in said["artifacts"]]))
    if said["timeline"] is not None:
        output.show(output.table(_EVENTS, [_event(one) for one in said["timeline"]]))


def _when(moment: Any) -> object:
    return "–" if moment is None else output.moment(moment)


def _row(one: Row) -> tuple[object, ...]:
    attached = f"{one['evidence_attached_count']} of {one['evidence_count']}"
    status = output.state(one["evidence_status"])
    return one["row_number"], one["case_id"], status, attached, one["evidence_failed_count"]


def _file(one: Row) -> tuple[object, ...]:
    return (
        one["artifact_id"],
        one["file_name"],
        output.state(one["attachment_status"]),
        one["retry_status"],
        one["attempt_count"],
        one["attachment_error_code"] or "–",
    )


def _event(one: Row) -> tuple[object, ...]:
    outcome = " ".join(part for part in (one["outcome"], one["error_code"]) if part)
    return output.short_moment(one["at"]), one["what"], one["row_number"], one["file_name"], outcome or "–"
