"""Reviews over HTTP, below /api/v1/reviews: jobs are listed and shown, submitted and run again; attempts are listed.

A submission has the rules and answers of `redrive.systems.reviews.submit` and `rerun`, and is idempotent by the key in
its body; the header `Idempotency-Key`, which every change needs, repeats an answer for a day. It goes to the caller's
own tenant, whatever the request says.

Row-level security limits a caller of one tenant to that tenant's reviews (sql/verbs/zz_grants.sql). Addresses of
recipients are personal data: a role below operator gets their domain only (`shown_recipient` in sql/verbs/views.sql).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, StringConstraints

from redrive.kit.database import snapshot
from redrive.kit.statements import Steps
from redrive.kit.web import Permission, Refusal, Scope, require, run_steps
from redrive.systems.reviews.reads import SQL, no_job
from redrive.systems.reviews.request import (
    ADDRESS_MAX,
    PROVIDER,
    VERSION_MAX,
    Recipient,
    ReviewRefused,
    ReviewRequest,
    folded,
)
from redrive.systems.reviews.submission import Submitted, rerun_steps, submit_steps

LIMIT_MAX = 500
Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Version = Annotated[int | None, Query(ge=1, description="Of the review; the latest unless given.")]

router = APIRouter()


class Stage(BaseModel):
    """A stage and its own attempts. state: waiting, pending, leased, done, dead, held or unrecorded. on_replay: what
    running it again would do.
    """

    stage: str
    state: str
    attempts: int
    error_class: str | None
    due_at: datetime | None
    on_replay: str


class Delivery(BaseModel):
    """A recipient. state: waiting, queued, sent, failed or held. on_replay: what sending it again would do."""

    recipient: str
    provider: str
    required: bool
    state: str
    message_id: UUID | None
    notification_id: str | None
    notified_at: datetime | None
    verified_at: datetime | None
    error_class: str | None
    due_at: datetime | None
    decided_by: str | None
    on_replay: str | None
    attempts: int


class Job(BaseModel):
    """One version of a review. findings: how many there are; None before llm is settled."""

    job_id: UUID
    tenant: str
    idempotency_key: str
    changelist_id: str
    review_version: int
    repository: str
    base_commit: str
    head_commit: str
    message_id: UUID
    state: str
    critic: str | None
    findings: int | None
    created_at: datetime
    reviewed_at: datetime | None
    succeeded_at: datetime | None
    stages: Sequence[Stage]
    deliveries: Sequence[Delivery]


class ListedJob(BaseModel):
    job_id: UUID
    changelist_id: str
    review_version: int
    repository: str
    state: str
    findings: int | None
    notified: int
    recipients: int
    created_at: datetime


class Jobs(BaseModel):
    """next: for `before`, None at the end."""

    items: Sequence[ListedJob]
    next: UUID | None


class Tried(BaseModel):
    """An attempt to notify a recipient, or an act of a person upon it. attempt: counts the claims of its message."""

    recipient: str
    message_id: UUID
    attempt: int
    verb: str
    answer: str | None
    code: str | None
    reference: str | None
    in_doubt: bool
    actor: str | None
    claimed_at: datetime | None
    completed_at: datetime | None


class Attempts(BaseModel):
    """By recipient, the oldest first; also of messages that were made to send it again."""

    items: Sequence[Tried]


class Notified(BaseModel):
    """A recipient of a submission. required: the job succeeds only when this one has been notified."""

    model_config = ConfigDict(extra="forbid", strict=True)

    address: str
    provider: str = PROVIDER
    required: bool = True


class Submission(BaseModel):
    """What is to be reviewed. idempotency_key: the same request again is the same job."""

    model_config = ConfigDict(extra="forbid", strict=True)

    changelist_id: str
    idempotency_key: str
    repository: str
    base_commit: str
    head_commit: str
    recipients: Sequence[Notified]
    review_version: int = 1


class Rerun(BaseModel):
    """A higher version under a new key. What is not given is as in the version before."""

    model_config = ConfigDict(extra="forbid", strict=True)

    review_version: int
    idempotency_key: str
    base_commit: str | None = None
    head_commit: str | None = None
    recipients: Sequence[Notified] | None = None


class SubmittedJob(BaseModel):
    """already_existed: the key or the version was submitted before; this is that job. request_differs: for something
    else, which is not done.
    """

    job_id: UUID
    changelist_id: str
    review_version: int
    already_existed: bool
    request_differs: bool
    state: str


@router.post("/jobs", status_code=201, dependencies=[require(Permission.ACT)])
async def submit_job(scope: Scope, given: Submission, response: Response) -> SubmittedJob:
    """Submit a changelist for review. 200 instead of 201 where it was submitted before."""
    values = {**given.model_dump(), "recipients": _recipients(given.recipients)}
    steps = submit_steps(ReviewRequest(**values, tenant=scope.tenant))
    return _submitted(await _answer(scope, steps), response)


@router.post("/jobs/{changelist_id:path}/reruns", status_code=201, dependencies=[require(Permission.ACT)])
async def rerun_job(
    scope: Scope,
    changelist_id: Name,
    given: Rerun,
    response: Response,
) -> SubmittedJob:
    """Review a changelist again. 200 instead of 201 where this version was submitted before."""
    steps = rerun_steps(
        changelist_id,
        review_version=given.review_version,
        idempotency_key=given.idempotency_key,
        base_commit=given.base_commit,
        head_commit=given.head_commit,
        recipients=None if given.recipients is None else _recipients(given.recipients),
        tenant=scope.tenant,
    )
    return _submitted(await _answer(scope, steps), response)


async def _answer(scope: Scope, steps: Steps[Submitted]) -> Submitted:
    """Only the last statement writes, and it looks at everything again."""
    try:
        return await run_steps(scope.store, steps)
    except ReviewRefused as error:
        status = 422 if error.job_id is None else 409
        job = None if error.job_id is None else str(error.job_id)
        raise Refusal(status, error.code, str(error), reason=error.reason, field=error.field, job_id=job) from None


def _submitted(answer: Submitted, response: Response) -> SubmittedJob:
    if answer.already_existed:
        response.status_code = 200
    return SubmittedJob(**asdict(answer))


def _recipients(given: Sequence[Notified]) -> Sequence[Recipient]:
    return [Recipient(**one.model_dump()) for one in given]


@router.get("/jobs", dependencies=[require(Permission.READ)])
async def list_jobs(
    scope: Scope,
    before: UUID | None = None,
    state: Annotated[str | None, Query(pattern="^(succeeded|in_progress|retryable_failed)$")] = None,
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = 50,
) -> Jobs:
    """Jobs, the newest first."""
    named = {"tenant": scope.tenant, "before": before, "state": state, "limit": limit}
    async with snapshot(scope.store) as reads:
        items = [ListedJob(**row) for row in await SQL.read(reads, "jobs", named)]
    return Jobs(items=items, next=items[-1].job_id if len(items) == limit else None)


@router.get("/jobs/{changelist_id:path}", dependencies=[require(Permission.READ)])
async def show_job(
    scope: Scope,
    changelist_id: Name,
    version: Version = None,
) -> Job:
    """One job with its stages and its recipients."""
    named: dict[str, Any] = {
        "tenant": scope.tenant,
        "changelist_id": changelist_id,
        "review_version": version,
    }
    async with snapshot(scope.store) as reads:
        found = await SQL.read(reads, "job", named)
        if not found:
            raise no_job(changelist_id, version)
        named["review_version"] = found[0]["review_version"]
        stages = [Stage(**row) for row in await SQL.read(reads, "stages", named)]
        deliveries = [Delivery(**row) for row in await SQL.read(reads, "deliveries", named)]
    return Job(**found[0], stages=stages, deliveries=deliveries)


@router.get("/attempts", dependencies=[require(Permission.READ)])
async def list_attempts(
    scope: Scope,
    changelist_id: Annotated[str, Query(min_length=1, max_length=200)],
    version: Annotated[int, Query(ge=1, le=VERSION_MAX, description="Of the review.")],
    recipient: Annotated[
        str | None, Query(max_length=ADDRESS_MAX, description="Only of this address; known to operators.")
    ] = None,
) -> Attempts:
    """Every attempt to notify the recipients of one version, or one of them."""
    named: dict[str, Any] = {
        "tenant": scope.tenant,
        "changelist_id": changelist_id,
        "review_version": version,
        "recipient": None if recipient is None else folded(recipient),
    }
    async with snapshot(scope.store) as reads:
        if not await SQL.read(reads, "job", named):
            raise no_job(changelist_id, version)
        return Attempts(items=[Tried(**row) for row in await SQL.read(reads, "attempts", named)])
