"""Access tokens."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.requests import Request

from redrive.operate import cursors
from redrive.operate.api.schemas import After, Limit, MadeToken, Why, Word, changes
from redrive.operate.web import tokens
from redrive.operate.web.dependencies import CurrentPrincipal, authenticator, require
from redrive.operate.web.idempotency import keep_instead
from redrive.operate.web.principal import Permission, Role
from redrive.operate.web.tokens import DAYS_DEFAULT, DAYS_MAX, NewToken, Tokens
from redrive.store.runtime.tenant_store import ALL_TENANTS

router = APIRouter(tags=["tokens"])


class TokenBody(Why):
    """name: who acts with it. tenant: `*` = all."""

    name: Word
    role: Role
    tenant: Word = ALL_TENANTS
    days: Annotated[float, Field(gt=0, le=DAYS_MAX)] = DAYS_DEFAULT


class Revoked(BaseModel):
    id: UUID
    revoked_now: bool


_ADMINISTERS = changes(Permission.ADMIN, all_tenants=True)


@router.get("/tokens", dependencies=[require(Permission.ADMIN, all_tenants=True)])
async def list_tokens(request: Request, after: After = None, limit: Limit = 50) -> Tokens:
    """All of them, latest first, without their secrets."""
    return await tokens.listed(authenticator(request).store, before=cursors.decode(UUID, after), limit=limit)


@router.post("/tokens", status_code=201, dependencies=_ADMINISTERS)
async def create_token(request: Request, principal: CurrentPrincipal, body: TokenBody) -> MadeToken:
    """Make one. Its secret is in this answer and nowhere else."""
    wanted = NewToken(**body.model_dump(exclude={"reason"}))
    id_, secret = await tokens.create(authenticator(request).store, wanted, body.who(principal))
    keep_instead(request, MadeToken(id=id_, secret=None).model_dump_json().encode())
    return MadeToken(id=id_, secret=secret)


@router.post("/tokens/{id}/revoke", dependencies=_ADMINISTERS)
async def revoke_token(request: Request, principal: CurrentPrincipal, id: UUID, body: Why) -> Revoked:
    """Revokes a token and the sessions that were opened with it."""
    return Revoked(id=id, revoked_now=await tokens.revoke(authenticator(request).store, id, body.who(principal)))
