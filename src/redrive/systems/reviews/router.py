"""Reviews over HTTP, below /api/v1/reviews.

Row-level security limits a caller of one tenant to that tenant's reviews (sql/verbs/zz_grants.sql). Addresses of
recipients are personal data: a role below operator gets their domain only (`shown_recipient` in sql/verbs/views.sql).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel, StringConstraints

from redrive.kit.database import snapshot
from redrive.kit.web import CurrentPrincipal, Permission, ScopedStore, require
from redrive.systems.reviews.reads import SQL, no_job

LIMIT_MAX = 500
Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Tenant = Annotated[str, Query(min_length=1, max_length=100, description="The tenant, for callers with access to all.")]
Version = Annotated[int | None, Query(ge=1, description="Of the review; the latest unless given.")]

router = APIRouter()


class Stage(BaseModel):
    """A stage and its own attempts. state: waiting, pending, leased, done, dead, held or unrecorded."""

    stage: str
    state: str
    attempts: int
    error_class: str | None
    due_at: datetime | None


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


@router.get("/jobs", dependencies=[require(Permission.READ)])
async def list_jobs(
    store: ScopedStore,
    principal: CurrentPrincipal,
    tenant: Tenant = "default",
    before: UUID | None = None,
    state: Annotated[str | None, Query(pattern="^(succeeded|in_progress|retryable_failed)$")] = None,
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = 50,
) -> Jobs:
    """Jobs, the newest first."""
    named = {"tenant": _whose(principal, tenant), "before": before, "state": state, "limit": limit}
    async with snapshot(store) as reads:
        items = [ListedJob(**row) for row in await SQL.read(reads, "jobs", named)]
    return Jobs(items=items, next=items[-1].job_id if len(items) == limit else None)


@router.get("/jobs/{changelist_id:path}", dependencies=[require(Permission.READ)])
async def show_job(
    store: ScopedStore,
    principal: CurrentPrincipal,
    changelist_id: Name,
    version: Version = None,
    tenant: Tenant = "default",
) -> Job:
    """One job with its stages and its recipients."""
    named: dict[str, Any] = {
        "tenant": _whose(principal, tenant),
        "changelist_id": changelist_id,
        "review_version": version,
    }
    async with snapshot(store) as reads:
        found = await SQL.read(reads, "job", named)
        if not found:
            raise no_job(changelist_id, version)
        named["review_version"] = found[0]["review_version"]
        stages = [Stage(**row) for row in await SQL.read(reads, "stages", named)]
        deliveries = [Delivery(**row) for row in await SQL.read(reads, "deliveries", named)]
    return Job(**found[0], stages=stages, deliveries=deliveries)


def _whose(principal: CurrentPrincipal, tenant: str) -> str:
    return tenant if principal.all_tenants else principal.tenant
