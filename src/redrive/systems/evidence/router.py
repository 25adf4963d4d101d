"""Evidence over HTTP, below /api/v1/evidence: archives are uploaded; jobs, rows, artifacts, timeline and lineage are
read; retries are asked for.

The body of an upload is the archive itself. It is written to a file that ends with the request, never beyond
`archive_bytes_max`, and at most two at once. `Idempotency-Key` is the key of the upload, for good. Everything goes to
the caller's own tenant, whatever the request says; row-level security limits what is read (sql/verbs/zz_grants.sql).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import BaseModel, ConfigDict, StringConstraints

from redrive.kit.database import Row, snapshot
from redrive.kit.web import Permission, Refusal, Scope, require
from redrive.systems.evidence.http_upload import received, stored
from redrive.systems.evidence.reads import SQL, no_artifact, no_job
from redrive.systems.evidence.retry import RETRY, refusal_of
from redrive.systems.evidence.uploading import Upload

LIMIT_MAX = 500
Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX)]
Merchant = Annotated[str, Query(min_length=1, max_length=200, description="Whose evidence it is.")]
Address = Annotated[str | None, Query(min_length=1, max_length=2000)]
Name = Annotated[str, Query(min_length=1, max_length=500, description="How notices and reports name the archive.")]
Key = Annotated[str, Header(alias="Idempotency-Key", pattern=r"^[\x21-\x7e]{1,255}$")]

router = APIRouter()


class UploadedJob(BaseModel):
    """already_existed: the same archive was uploaded under this key before; this is that job."""

    file_job_id: UUID
    rows: int
    artifacts: int
    archive_sha256: str
    already_existed: bool


class ListedJob(BaseModel):
    """progress: attaching before N1, retrying between N1 and N2, then closed."""

    file_job_id: UUID
    merchant_id: str
    archive_name: str
    progress: str
    rows: int
    artifacts: int
    attached: int
    failed: int
    created_at: datetime


class Jobs(BaseModel):
    """next: for `before`, None at the end."""

    items: Sequence[ListedJob]
    next: UUID | None


class Job(ListedJob):
    tenant: str
    idempotency_key: str
    archive_sha256: str
    archive_size_bytes: int
    created_by: str
    sealed_at: datetime | None
    n1_sent_at: datetime | None
    n2_sent_at: datetime | None
    n2_forced: bool


class Listed(BaseModel):
    """Rows of a list, by the names of the columns. next: where to go on, None at the end."""

    items: Sequence[dict[str, Any]]
    next: str | None


class Lineage(BaseModel):
    """origin: archive, row and artifact. messages: requests, attempts, results. attempts: of the engine."""

    origin: dict[str, Any]
    messages: Sequence[dict[str, Any]]
    attempts: Sequence[dict[str, Any]]


class Reason(BaseModel):
    """Why the retries are asked for; the events say it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    reason: Annotated[str, StringConstraints(min_length=1, max_length=300)]


class Retried(BaseModel):
    rows: int
    artifacts: int


@router.post("/jobs", status_code=201, dependencies=[require(Permission.ACT)])
async def upload_job(
    request: Request,
    response: Response,
    scope: Scope,
    merchant_id: Merchant,
    key: Key,
    archive_name: Name = "evidence.zip",
    notify_mail: Address = None,
    notify_webhook: Address = None,
) -> UploadedJob:
    """Upload an archive: the body is the ZIP. 200 instead of 201 where it was uploaded before; 422 lists the
    problems.
    """
    async with received(request) as archive:
        asked = Upload(
            archive=archive,
            merchant_id=merchant_id,
            idempotency_key=key,
            notify_mail=notify_mail,
            notify_webhook=notify_webhook,
            archive_name=archive_name,
            tenant=scope.tenant,
        )
        done = await stored(scope.store, asked)
    response.status_code = 200 if done.already_existed else 201
    return UploadedJob(
        file_job_id=done.file_job_id,
        rows=done.rows,
        artifacts=done.artifacts,
        archive_sha256=done.archive_sha256,
        already_existed=done.already_existed,
    )


@router.get("/jobs", dependencies=[require(Permission.READ)])
async def list_jobs(scope: Scope, before: UUID | None = None, limit: Limit = 50) -> Jobs:
    """Jobs, the newest first."""
    rows = await _read(scope, "jobs", before=before, limit=limit)
    items = [ListedJob(**row) for row in rows]
    return Jobs(items=items, next=items[-1].file_job_id if len(items) == limit else None)


@router.get("/jobs/{job}", dependencies=[require(Permission.READ)])
async def show_job(scope: Scope, job: UUID) -> Job:
    """One job with its totals."""
    return Job(**await _job(scope, job))


@router.get("/jobs/{job}/rows", dependencies=[require(Permission.READ)])
async def list_rows(
    scope: Scope,
    job: UUID,
    after: Annotated[int, Query(ge=0)] = 0,
    limit: Limit = 50,
) -> Listed:
    """Rows of a job in the order of the CSV."""
    await _job(scope, job)
    return _listed(await _read(scope, "rows", file_job_id=job, after=after, limit=limit), "row_number", limit)


@router.get("/jobs/{job}/artifacts", dependencies=[require(Permission.READ)])
async def list_artifacts(
    scope: Scope,
    job: UUID,
    row: UUID | None = None,
    status: Annotated[str | None, Query(pattern="^(PENDING|ATTACHED|FAILED)$")] = None,
    after: UUID | None = None,
    limit: Limit = 50,
) -> Listed:
    """Files of a job, of one row or one status where asked for."""
    await _job(scope, job)
    wanted = {"file_job_id": job, "file_job_row_id": row, "status": status}
    return _listed(await _read(scope, "artifacts", **wanted, after=after, limit=limit), "artifact_id", limit)


@router.get("/jobs/{job}/timeline", dependencies=[require(Permission.READ)])
async def show_timeline(scope: Scope, job: UUID, before: UUID | None = None, limit: Limit = 50) -> Listed:
    """What happened to a job, the newest first."""
    await _job(scope, job)
    return _listed(await _read(scope, "timeline", file_job_id=job, before=before, limit=limit), "message_id", limit)


@router.get("/cases/{case}/timeline", dependencies=[require(Permission.READ)])
async def show_case(scope: Scope, case: UUID, before: UUID | None = None, limit: Limit = 50) -> Listed:
    """What happened to the files of a case in all its jobs, the newest first: requests, attempts and results."""
    return _listed(await _read(scope, "case", case_id=case, before=before, limit=limit), "message_id", limit)


@router.get("/artifacts/{artifact}/lineage", dependencies=[require(Permission.READ)])
async def show_lineage(scope: Scope, artifact: UUID) -> Lineage:
    """Where a file comes from and what was done with it."""
    named = {"tenant": scope.tenant, "artifact_id": artifact}
    async with snapshot(scope.store) as reads:
        origin = await SQL.read(reads, "lineage", named)
        if not origin:
            raise no_artifact(artifact)
        messages = await SQL.read(reads, "lineage_messages", named)
        attempts = await SQL.read(reads, "lineage_attempts", named)
    return Lineage(origin=dict(origin[0]), messages=[*map(dict, messages)], attempts=[*map(dict, attempts)])


@router.post("/jobs/{job}/retries", dependencies=[require(Permission.ACT)])
async def retry_job(scope: Scope, job: UUID, given: Reason) -> Retried:
    """Requeue what failed for a reason that may pass, whether it is due or not. 409 where nothing can be requeued."""
    values = (scope.tenant, str(job), scope.principal.name, given.reason)
    result, rows, artifacts = (await scope.store.rows(RETRY, values))[0]
    if result == "not_found":
        raise no_job(job)
    if result != "done":
        raise Refusal(409, "ACT_REFUSED", refusal_of(result, job), reason=result)
    return Retried(rows=rows, artifacts=artifacts)


async def _job(scope: Scope, job: UUID) -> Row:
    found = await _read(scope, "job", file_job_id=job)
    if not found:
        raise no_job(job)
    return found[0]


async def _read(scope: Scope, name: str, **named: Any) -> Sequence[Row]:
    async with snapshot(scope.store) as reads:
        return await SQL.read(reads, name, {"tenant": scope.tenant, **named})


def _listed(rows: Sequence[Row], position: str, limit: int) -> Listed:
    return Listed(items=[*map(dict, rows)], next=str(rows[-1][position]) if len(rows) == limit else None)
