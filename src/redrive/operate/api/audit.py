"""The audit, and whether it is as it was written."""

from typing import Annotated

from fastapi import APIRouter, Query

from redrive.operate import cursors
from redrive.operate.api.schemas import After, Key, Limit
from redrive.operate.desk import audit
from redrive.operate.desk.audit import Verified
from redrive.operate.documents import Listed, listed
from redrive.operate.web.dependencies import ScopedStore, require
from redrive.operate.web.principal import Permission
from redrive.store.reads.models import AuditEntry

router = APIRouter(tags=["audit"])


_AUDITS = require(Permission.AUDIT, all_tenants=True)


@router.get("/audit", dependencies=[_AUDITS])
async def list_audit(
    store: ScopedStore, subject: Key | None = None, after: After = None, limit: Limit = 50
) -> Listed[AuditEntry]:
    """What people did and were refused, latest first."""
    return listed(await audit.list_audit(store, subject=subject, before=cursors.decode(int, after), limit=limit))


@router.get("/audit/verify", dependencies=[_AUDITS])
async def verify_audit(
    store: ScopedStore,
    head: Annotated[str | None, Query(max_length=200, description="One that was noted earlier: NUMBER:HASH.")] = None,
) -> Verified:
    """Whether the record is as it was written."""
    return await audit.verify(store, noted=head)
