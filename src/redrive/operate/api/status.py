"""What flows, which relays and workers live, and whether the database is fit."""

from collections.abc import Sequence
from dataclasses import asdict

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.requests import Request

from redrive.operate import doctor, operations
from redrive.operate.api.schemas import READS, READS_ALL, Me
from redrive.operate.doctor import Point
from redrive.operate.findings import StatusReport, report
from redrive.operate.installed import installed_sets
from redrive.operate.web.dependencies import CurrentPrincipal, ScopedStore, authenticator
from redrive.operate.web.principal import Permission
from redrive.operate.web.tenants import status_for
from redrive.store.reads.status import RelayState, WorkerState

router = APIRouter(tags=["status"])


@router.get("/me", dependencies=READS)
async def me(principal: CurrentPrincipal) -> Me:
    """The caller's name, role, tenant and permissions."""
    return Me(**asdict(principal), permissions=[one for one in Permission if principal.may(one)])


@router.get("/status", dependencies=READS)
async def status(store: ScopedStore, principal: CurrentPrincipal) -> StatusReport:
    """Backlog, relays, workers, duties and findings; for a caller of one tenant only its backlog and findings."""
    return report(status_for(principal, await operations.status(store)))


@router.get("/relays", dependencies=READS_ALL)
async def relays(store: ScopedStore) -> Sequence[RelayState]:
    """Relays that live or lived lately, and what they handle."""
    return (await operations.status(store)).relays


@router.get("/workers", dependencies=READS_ALL)
async def workers(store: ScopedStore) -> Sequence[WorkerState]:
    """Workers that live or lived lately, and how far their consumers are."""
    return (await operations.status(store)).workers


class Examined(BaseModel):
    points: Sequence[Point]


@router.get("/doctor", dependencies=READS_ALL)
async def examine(request: Request) -> Examined:
    """Whether the database is fit, point by point."""
    return Examined(points=await doctor.examine(authenticator(request).dsn, sets=installed_sets()))
