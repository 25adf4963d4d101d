"""Replays: dead letters that are sent again."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from fastapi import APIRouter
from starlette.requests import Request

from redrive.operate import cursors
from redrive.operate.actions.model import Noun
from redrive.operate.actions.table import REPLAY, STEERING, find
from redrive.operate.api.schemas import ACTS, READS, After, Limit, Why, Word, body_of, changes, given, names_of
from redrive.operate.api.selecting import Filter, Selection, SelectionWhy, group_of, tenant_of
from redrive.operate.desk import replays
from redrive.operate.desk.replays import NewReplay, PlanShown
from redrive.operate.documents import Listed, listed
from redrive.operate.web.dependencies import CurrentPrincipal, ScopedStore
from redrive.operate.web.idempotency import key_hash, key_of
from redrive.operate.web.principal import Permission
from redrive.store.reads.models import ReplayItem, ReplayView

router = APIRouter(tags=["replays"])


ReplayBody: Any = body_of("ReplayBody", [REPLAY], base=Selection)
NewReplayBody: Any = body_of("NewReplayBody", [REPLAY], base=SelectionWhy, name=(Word, ...))
Steering: Any = names_of("Steering", [one for one in STEERING if one.permission is Permission.ACT])


@router.get("/replays", dependencies=READS)
async def list_replays(
    store: ScopedStore, unfinished: bool = False, after: After = None, limit: Limit = 20
) -> Listed[ReplayView]:
    """Replays, latest first; a principal of one tenant sees those that were made for that tenant."""
    page = await replays.list_replays(store, finished=not unfinished, before=cursors.decode(UUID, after), limit=limit)
    return listed(page)


@router.post("/replays/plan", dependencies=ACTS)
async def plan_replay(store: ScopedStore, principal: CurrentPrincipal, body: ReplayBody) -> PlanShown:
    """What a replay would send, and what it would skip and why. Nothing is changed."""
    wanted = await _wanted(store, principal, body, name="plan", reason="plan")
    return replays.shown_plan(await replays.plan(store, wanted))


@router.post("/replays", status_code=201, dependencies=ACTS)
async def create_replay(
    request: Request, store: ScopedStore, principal: CurrentPrincipal, body: NewReplayBody
) -> ReplayView:
    """Send dead letters again. Where the destination moves money, an approver has to let it go."""
    once = key_hash(principal, key_of(request)).hex()
    wanted = await _wanted(store, principal, body, name=body.name, reason=body.reason, request_key=f"api {once}")
    replay: ReplayView = await REPLAY.call(store, wanted)
    return replay


async def _wanted(store: ScopedStore, principal: CurrentPrincipal, body: Any, **more: Any) -> NewReplay:
    filter_ = await _replay_filter(store, principal, body.ids, body.filter)
    return NewReplay(filter=filter_, actor=principal.name, **given(REPLAY, body), **more)


async def _replay_filter(
    store: ScopedStore, principal: CurrentPrincipal, ids: Sequence[UUID] | None, wanted: Filter | None
) -> dict[str, Any]:
    """A principal of one tenant replays nothing of another."""
    tenant = tenant_of(principal, wanted.tenant if wanted else None)
    own: dict[str, Any] = {} if tenant is None else {"tenant": tenant}
    if ids is not None:
        return {"ids": [str(one) for one in dict.fromkeys(ids)], **own}
    assert wanted is not None
    named = wanted.model_dump(exclude_none=True, exclude={"tenant"})
    if wanted.group:
        named["group"] = (await group_of(store, principal, wanted.group)).hex()
    return {**named, **own}


@router.get("/replays/{id}", dependencies=READS)
async def show_replay(store: ScopedStore, id: UUID) -> ReplayView:
    """How far it is."""
    return await replays.find(store, str(id))


@router.get("/replays/{id}/items", dependencies=READS)
async def list_items(
    store: ScopedStore, id: UUID, outcome: Word | None = None, after: After = None, limit: Limit = 50
) -> Listed[ReplayItem]:
    """Its messages, in the order in which they go, and what became of each."""
    replay = await replays.find(store, str(id))
    position = cursors.decode(int, after) or 0
    return listed(await replays.list_items(store, replay.id, outcome=outcome, after=position, limit=limit))


@router.post("/replays/{id}/approve", dependencies=changes(Permission.APPROVE))
async def approve_replay(store: ScopedStore, principal: CurrentPrincipal, id: UUID, body: Why) -> ReplayView:
    """Let a replay go that moves money and that another person has made."""
    return await _steered(store, principal, id, "approve", body)


@router.post("/replays/{id}/{act}", dependencies=ACTS)
async def steer_replay(
    store: ScopedStore, principal: CurrentPrincipal, id: UUID, act: Steering, body: Why
) -> ReplayView:
    """Pause, resume or cancel it."""
    return await _steered(store, principal, id, act, body)


async def _steered(store: ScopedStore, principal: CurrentPrincipal, id_: UUID, act: str, body: Why) -> ReplayView:
    replay: ReplayView = await find(Noun.REPLAY, act).call(store, str(id_), body.who(principal))
    return replay
