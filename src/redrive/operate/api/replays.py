"""Replays: dead letters that are sent again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request

from redrive.operate.api import cursors, schemas
from redrive.operate.api.mutation import changes
from redrive.operate.api.paging import After
from redrive.operate.api.schemas import Limit, Listed, PlanShown, Why, Word
from redrive.operate.api.selecting import Filter, Selection, group_of, tenant_of
from redrive.operate.desk import replays
from redrive.operate.desk.replays import NewReplay, Steering
from redrive.operate.web import CurrentPrincipal, Permission, ScopedStore, require
from redrive.operate.web.idempotency import key_hash, key_of
from redrive.store.reads.models import ReplayItem, ReplayView

router = APIRouter(tags=["replays"])


class ReplayBody(Selection):
    """As `redrive replay create`; for its defaults see there."""

    stage: Word | None = None
    out_of_order: bool = False
    override: bool = False
    rate_per_second: Annotated[float, Field(gt=0, le=replays.RATE_MAX)] = 50.0
    canary: Annotated[int, Field(ge=0, le=replays.CANARY_MAX)] = 0
    failure_ratio_max: Annotated[float, Field(ge=0, le=1)] = 0.1


class NewReplayBody(ReplayBody, Why):
    name: Word


@router.get("/replays", dependencies=[require(Permission.READ)])
async def list_replays(
    store: ScopedStore, unfinished: bool = False, after: After = None, limit: Limit = 20
) -> Listed[ReplayView]:
    """Replays, latest first; who sees one tenant sees those that were made for it alone."""
    page = await replays.list_replays(store, finished=not unfinished, before=cursors.to_id(after), limit=limit)
    return schemas.listed(page, cursors.of_id)


@router.post("/replays/plan", dependencies=changes(Permission.ACT))
async def plan_replay(store: ScopedStore, principal: CurrentPrincipal, body: ReplayBody) -> PlanShown:
    """What a replay would send, and what it would skip and why. Nothing is changed."""
    wanted = await _wanted(store, principal, body, name="plan", reason="plan")
    plan = await replays.plan(store, wanted)
    skipped = {verdict: number for verdict, number in plan.verdicts.items() if verdict != "would"}
    return PlanShown(
        would=plan.verdicts.get("would", 0),
        skipped=skipped,
        second_person=plan.money,
        late_successes=plan.late_successes,
    )


@router.post("/replays", status_code=201, dependencies=changes(Permission.ACT))
async def create_replay(
    request: Request, store: ScopedStore, principal: CurrentPrincipal, body: NewReplayBody
) -> ReplayView:
    """Send dead letters again. Where the destination moves money, an approver has to let it go."""
    once = key_hash(principal, key_of(request)).hex()
    wanted = await _wanted(store, principal, body, name=body.name, reason=body.reason, request_key=f"api {once}")
    return await replays.create(store, wanted)


async def _wanted(store: ScopedStore, principal: CurrentPrincipal, body: ReplayBody, **more: Any) -> NewReplay:
    return NewReplay(
        filter=await _replay_filter(store, principal, body.ids, body.filter),
        actor=principal.name,
        stage=body.stage,
        out_of_order=body.out_of_order,
        override=body.override,
        rate_per_second=body.rate_per_second,
        canary=body.canary,
        failure_ratio_max=body.failure_ratio_max,
        **more,
    )


async def _replay_filter(
    store: ScopedStore, principal: CurrentPrincipal, ids: Sequence[UUID] | None, given: Filter | None
) -> dict[str, Any]:
    """With the tenant of who sees one only: what is of another one is not there."""
    tenant = tenant_of(principal, given.tenant if given else None)
    own: dict[str, Any] = {} if tenant is None else {"tenant": tenant}
    if ids is not None:
        return {"ids": [str(one) for one in dict.fromkeys(ids)], **own}
    assert given is not None
    named = given.model_dump(exclude_none=True, exclude={"tenant"})
    if given.group:
        named["group"] = (await group_of(store, principal, given.group)).hex()
    return {**named, **own}


@router.get("/replays/{id}", dependencies=[require(Permission.READ)])
async def show_replay(store: ScopedStore, id: UUID) -> ReplayView:
    """How far it is."""
    return await replays.find(store, str(id))


@router.get("/replays/{id}/items", dependencies=[require(Permission.READ)])
async def list_items(
    store: ScopedStore, id: UUID, outcome: Word | None = None, after: After = None, limit: Limit = 50
) -> Listed[ReplayItem]:
    """Its messages, in the order in which they go, and what became of each."""
    replay = await replays.find(store, str(id))
    page = await replays.list_items(store, replay.id, outcome=outcome, after=cursors.to_number(after) or 0, limit=limit)
    return schemas.listed(page, cursors.of_number)


@router.post("/replays/{id}/approve", dependencies=changes(Permission.APPROVE))
async def approve_replay(store: ScopedStore, principal: CurrentPrincipal, id: UUID, body: Why) -> ReplayView:
    """Let a replay go that moves money and that another person has made."""
    return await _steered(store, principal, id, "approve", body)


@router.post("/replays/{id}/{act}", dependencies=changes(Permission.ACT))
async def steer_replay(
    store: ScopedStore,
    principal: CurrentPrincipal,
    id: UUID,
    act: Literal["pause", "resume", "cancel"],
    body: Why,
) -> ReplayView:
    """Pause, resume or cancel it."""
    return await _steered(store, principal, id, act, body)


async def _steered(store: ScopedStore, principal: CurrentPrincipal, id_: UUID, act: Steering, body: Why) -> ReplayView:
    return await replays.steer(store, str(id_), act, actor=principal.name, reason=body.reason)
