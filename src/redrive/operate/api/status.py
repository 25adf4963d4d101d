"""What flows, which relays live, and whether the database is fit."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.requests import Request

from redrive.operate import doctor, operations
from redrive.operate.api.schemas import Me
from redrive.operate.doctor import Point
from redrive.operate.findings import StatusReport
from redrive.operate.installed import installed_sets
from redrive.operate.web.dependencies import CurrentPrincipal, ScopedStore, authenticator, require
from redrive.operate.web.principal import Permission
from redrive.operate.web.tenants import report_for
from redrive.store.reads.status import RelayState

router = APIRouter(tags=["status"])
_SEES_ALL = require(Permission.READ, all_tenants=True)


@router.get("/me", dependencies=[require(Permission.READ)])
async def me(principal: CurrentPrincipal) -> Me:
    """The caller's name, role, tenant and permissions."""
    permissions = [one for one in Permission if principal.may(one)]
    return Me(name=principal.name, role=principal.role, tenant=principal.tenant, permissions=permissions)


@router.get("/status", dependencies=[require(Permission.READ)])
async def status(store: ScopedStore, principal: CurrentPrincipal) -> StatusReport:
    """Backlog, relays, duties and findings; for a caller of one tenant only its backlog and findings."""
    return report_for(principal, await operations.status(store))


@router.get("/relays", dependencies=[_SEES_ALL])
async def relays(store: ScopedStore) -> Sequence[RelayState]:
    """Relays that live or lived lately, and what they handle."""
    return (await operations.status(store)).relays


class Examined(BaseModel):
    points: Sequence[Point]


@router.get("/doctor", dependencies=[_SEES_ALL])
async def examine(request: Request) -> Examined:
    """Whether the database is fit, point by point."""
    return Examined(points=await doctor.examine(authenticator(request).dsn, sets=installed_sets()))
