"""What flows, who works, destinations, ordering keys, the audit, and who may come in."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from starlette.requests import Request

from redrive.errors import NotFound
from redrive.operate import destination_test, doctor, operations
from redrive.operate.api import cursors, schemas
from redrive.operate.api.messages import After
from redrive.operate.api.mutation import changes
from redrive.operate.api.schemas import Key, Limit, Listed, MadeToken, Me, Why, Word
from redrive.operate.desk import audit
from redrive.operate.desk.audit import Head
from redrive.operate.doctor import Point
from redrive.operate.installed import installed_sets
from redrive.operate.web import CurrentPrincipal, Permission, Role, ScopedStore, authenticator, require, tokens
from redrive.operate.web.idempotency import keep_instead
from redrive.operate.web.tenants import status_for
from redrive.operate.web.tokens import DAYS_DEFAULT, DAYS_MAX, NewToken
from redrive.ports import LimitKeyState
from redrive.store.reads.models import AuditEntry, DestinationView, KeyFilter, KeyView
from redrive.store.reads.status import Backlog, RelayState, Status
from redrive.store.runtime.access import TokenView
from redrive.store.runtime.tenant_store import ALL_TENANTS

router = APIRouter()
_SEES_ALL = require(Permission.READ, all_tenants=True)
TEST_SECONDS_MAX = 25.0
KEYS_MAX = 100


@router.get("/me", tags=["status"], dependencies=[require(Permission.READ)])
async def me(principal: CurrentPrincipal) -> Me:
    """Who asks, and what they may."""
    permissions = [one for one in Permission if principal.may(one)]
    return Me(name=principal.name, role=principal.role, tenant=principal.tenant, permissions=permissions)


@router.get("/status", tags=["status"], dependencies=[require(Permission.READ)])
async def status(store: ScopedStore, principal: CurrentPrincipal) -> Status:
    """What flows, what waits and who works; of one tenant for who sees one."""
    return status_for(principal, await operations.status(store))


@router.get("/relays", tags=["status"], dependencies=[_SEES_ALL])
async def relays(store: ScopedStore) -> Sequence[RelayState]:
    """Relays that live or lived lately, and what they handle."""
    return (await operations.status(store)).relays


class Examined(BaseModel):
    points: Sequence[Point]


@router.get("/doctor", tags=["status"], dependencies=[_SEES_ALL])
async def examine(request: Request) -> Examined:
    """Whether the database is fit, point by point."""
    return Examined(points=await doctor.examine(authenticator(request).dsn, sets=installed_sets()))


# destinations


class Destination(BaseModel):
    """open: what waits there now. known: pause, breaker and limits; None where it was never registered.

    limit_keys: those of its limit keys that rest, are paused, or whose breaker is not closed; 100 of all at most.
    """

    name: str
    open: Backlog | None
    known: DestinationView | None
    limit_keys: Sequence[LimitKeyState] = ()


class Destinations(BaseModel):
    at: datetime
    items: Sequence[Destination]


class Changed(BaseModel):
    """changed: whether anything was; a dry run changes nothing."""

    name: str
    act: str
    dry_run: bool
    changed: bool


class DestinationAct(Why):
    """key: one limit key of the destination only."""

    dry_run: bool = False
    key: Annotated[str, Field(min_length=1, max_length=100)] | None = None


class Test(Why):
    seconds: Annotated[float, Field(ge=0, le=TEST_SECONDS_MAX)] = 5.0


@router.get("/destinations", tags=["destinations"], dependencies=[_SEES_ALL])
async def list_destinations(store: ScopedStore) -> Destinations:
    """Every destination that was registered, was paused, or has open messages."""
    seen = await operations.status(store)
    known = {one.name: one for one in await operations.list_destinations(store)}
    keys = await store.limit_keys([one.destination for one in seen.backlog], limit=KEYS_MAX)
    items = [
        Destination(
            name=one.destination,
            open=one,
            known=known.get(one.destination),
            limit_keys=[key for key in keys if key.destination == one.destination],
        )
        for one in seen.backlog
    ]
    return Destinations(at=seen.at, items=items)


@router.get("/destinations/{name}", tags=["destinations"], dependencies=[_SEES_ALL])
async def show_destination(store: ScopedStore, name: Word) -> Destination:
    """One of them."""
    found = [one for one in (await list_destinations(store)).items if one.name == name]
    if not found:
        raise NotFound(f"There is no destination {name!r}.", next="redrive destinations list")
    return found[0]


@router.post(
    "/destinations/{name}/pause", tags=["destinations"], dependencies=changes(Permission.ACT, all_tenants=True)
)
async def pause(store: ScopedStore, principal: CurrentPrincipal, name: Word, body: DestinationAct) -> Changed:
    """Send nothing there for now."""
    await operations.require_known(store, name)
    who: dict[str, Any] = {"actor": principal.name, "reason": body.reason}
    changed = not body.dry_run and await (
        store.pause(name, **who) if body.key is None else store.pause_key(name, body.key, **who)
    )
    return Changed(name=name, act="pause", dry_run=body.dry_run, changed=changed)


@router.post(
    "/destinations/{name}/resume", tags=["destinations"], dependencies=changes(Permission.ACT, all_tenants=True)
)
async def resume(store: ScopedStore, principal: CurrentPrincipal, name: Word, body: DestinationAct) -> Changed:
    """Send there again."""
    await operations.require_known(store, name)
    who: dict[str, Any] = {"actor": principal.name, "reason": body.reason}
    changed = not body.dry_run and await (
        store.resume(name, **who) if body.key is None else store.resume_key(name, body.key, **who)
    )
    return Changed(name=name, act="resume", dry_run=body.dry_run, changed=changed)


class Tested(BaseModel):
    """answered: None where no relay took the message in time, or it has not come back."""

    name: str
    answered: bool | None
    message_id: UUID | None
    answer: str | None
    code: str | None
    known: DestinationView


@router.post("/destinations/{name}/test", tags=["destinations"], dependencies=changes(Permission.ACT, all_tenants=True))
async def test(store: ScopedStore, principal: CurrentPrincipal, name: Word, body: Test) -> Tested:
    """Let one message through to a destination that is held back, and see what it says."""
    probed = await destination_test.probe(store, name, actor=principal.name, reason=body.reason, seconds=body.seconds)
    return Tested(
        name=name,
        answered=probed.answered,
        message_id=probed.id,
        answer=probed.answer,
        code=probed.code,
        known=probed.destination,
    )


# ordering keys


class Skip(Why):
    """sequence: the head that was looked at; refused where the key has another one by now."""

    tenant: Word
    order_by: Key
    sequence: Annotated[int, Field(ge=1, lt=2**63)]
    dry_run: bool = False


class Skipped(BaseModel):
    dry_run: bool
    head: KeyView


@router.get("/keys", tags=["keys"], dependencies=[require(Permission.READ)])
async def list_keys(
    store: ScopedStore,
    tenant: Word | None = None,
    destination: Word | None = None,
    blocked: bool = False,
    after: After = None,
    limit: Limit = 50,
) -> Listed[KeyView]:
    """Ordering keys with anything open; those first that wait for a person."""
    wanted = KeyFilter(
        tenant=tenant, destination=destination, blocked=blocked, after=cursors.to_key(after), limit=limit
    )
    return schemas.listed(await operations.list_keys(store, wanted), cursors.of_key)


@router.post("/keys/skip", tags=["keys"], dependencies=changes(Permission.ACT))
async def skip(store: ScopedStore, principal: CurrentPrincipal, body: Skip) -> Skipped:
    """Close the head of a key for good, so that the key goes on."""
    head = await operations.find_head(store, body.tenant, body.order_by, sequence=body.sequence)
    if not body.dry_run:
        await operations.skip(store, head, actor=principal.name, reason=body.reason)
    return Skipped(dry_run=body.dry_run, head=head)


# the audit


class Fault(BaseModel):
    id: int
    what: str


class VerifiedShown(BaseModel):
    """head: note it outside the database, and let it be looked for later."""

    intact: bool
    checked: int
    head: str | None
    faults: Sequence[Fault]


_AUDITS = require(Permission.AUDIT, all_tenants=True)


@router.get("/audit", tags=["audit"], dependencies=[_AUDITS])
async def list_audit(
    store: ScopedStore, subject: Key | None = None, after: After = None, limit: Limit = 50
) -> Listed[AuditEntry]:
    """What people did and were refused, latest first."""
    page = await audit.list_audit(store, subject=subject, before=cursors.to_number(after), limit=limit)
    return schemas.listed(page, cursors.of_number)


@router.get("/audit/verify", tags=["audit"], dependencies=[_AUDITS])
async def verify_audit(
    store: ScopedStore,
    head: Annotated[str | None, Query(max_length=200, description="One that was noted earlier: NUMBER:HASH.")] = None,
) -> VerifiedShown:
    """Whether the record is as it was written."""
    verified = await audit.verify(store, noted=Head.parse(head) if head else None)
    faults = [Fault(id=one.id, what=one.what) for one in verified.faults]
    told = str(verified.head) if verified.head else None
    return VerifiedShown(intact=verified.intact, checked=verified.checked, head=told, faults=faults)


# who may come in


class TokenBody(Why):
    """name: who acts with it. tenant: `*` = all."""

    name: Word
    role: Role
    tenant: Word = ALL_TENANTS
    days: Annotated[float, Field(gt=0, le=DAYS_MAX)] = DAYS_DEFAULT


class Tokens(BaseModel):
    items: Sequence[TokenView]
    next: str | None


class Revoked(BaseModel):
    id: UUID
    revoked_now: bool


_ADMINISTERS = require(Permission.ADMIN, all_tenants=True)


@router.get("/tokens", tags=["tokens"], dependencies=[_ADMINISTERS])
async def list_tokens(request: Request, after: After = None, limit: Limit = 50) -> Tokens:
    """All of them, latest first, without their secrets."""
    found = await tokens.listed(authenticator(request).store, before=cursors.to_id(after), limit=limit)
    return Tokens(items=found, next=cursors.of_id(found[-1].id) if len(found) == limit else None)


@router.post("/tokens", tags=["tokens"], status_code=201, dependencies=changes(Permission.ADMIN, all_tenants=True))
async def create_token(request: Request, principal: CurrentPrincipal, body: TokenBody) -> MadeToken:
    """Make one. Its secret is in this answer and nowhere else."""
    wanted = NewToken(name=body.name, role=body.role, tenant=body.tenant, days=body.days)
    id_, secret = await tokens.create(authenticator(request).store, wanted, actor=principal.name, reason=body.reason)
    keep_instead(request, MadeToken(id=id_, secret=None).model_dump_json().encode())
    return MadeToken(id=id_, secret=secret)


@router.post("/tokens/{id}/revoke", tags=["tokens"], dependencies=changes(Permission.ADMIN, all_tenants=True))
async def revoke_token(request: Request, principal: CurrentPrincipal, id: UUID, body: Why) -> Revoked:
    """It lets nobody in any more, nor does a session that came by it."""
    now = await tokens.revoke(authenticator(request).store, id, actor=principal.name, reason=body.reason)
    return Revoked(id=id, revoked_now=now)
