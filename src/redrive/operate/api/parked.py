"""What waits for a person: dead, held and unrecorded messages."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query

from redrive.errors import NotFound
from redrive.message import MessageId, ParkReason
from redrive.operate import cursors, documents, operations
from redrive.operate.api.mutation import READS
from redrive.operate.api.schemas import After, Limit, Word
from redrive.operate.api.selecting import tenant_of
from redrive.operate.documents import Listed
from redrive.operate.web.dependencies import CurrentPrincipal, ScopedStore
from redrive.store.reads.models import ParkedFilter, ParkedPosition, ParkedRecord

router = APIRouter(tags=["messages"])


@router.get("/parked", dependencies=READS)
async def list_parked(
    store: ScopedStore,
    principal: CurrentPrincipal,
    reason: ParkReason,
    destination: Word | None = None,
    tenant: Word | None = None,
    kind: Word | None = None,
    error_class: Word | None = None,
    group: Annotated[
        str | None, Query(pattern="^[0-9a-f]{32}$", description="The whole id of a failure group.")
    ] = None,
    after: After = None,
    limit: Limit = 50,
) -> Listed[ParkedRecord]:
    """What waits for a person, latest first: dead, held or unrecorded."""
    wanted = ParkedFilter(
        reason=reason,
        destination=destination,
        tenant=tenant_of(principal, tenant),
        kind=kind,
        error_class=error_class,
        failure_group=bytes.fromhex(group) if group else None,
        before=cursors.decode(ParkedPosition, after),
        limit=limit,
    )
    return documents.listed(await operations.list_parked(store, wanted))


@router.get("/parked/{id}", dependencies=READS)
async def show_parked(store: ScopedStore, id: UUID) -> ParkedRecord:
    """One of them. `row_version` counts what people changed about it."""
    found = await operations.show_parked(store, MessageId(id))
    if found is None:
        raise NotFound(f"No message {id} is parked.", next="redrive messages list")
    return found
