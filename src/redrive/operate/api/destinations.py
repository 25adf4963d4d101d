"""Destinations: their state, and pause, resume and test."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter
from pydantic import BaseModel, Field

from redrive.errors import NotFound
from redrive.operate import destination_test, operations
from redrive.operate.api.mutation import changes
from redrive.operate.api.schemas import Why, Word
from redrive.operate.web import CurrentPrincipal, Permission, ScopedStore, require
from redrive.ports import LimitKeyState
from redrive.store.reads.models import DestinationView
from redrive.store.reads.status import Backlog

router = APIRouter(tags=["destinations"])
_SEES_ALL = require(Permission.READ, all_tenants=True)
TEST_SECONDS_MAX = 25.0
KEYS_MAX = 100


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


@router.get("/destinations", dependencies=[_SEES_ALL])
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


@router.get("/destinations/{name}", dependencies=[_SEES_ALL])
async def show_destination(store: ScopedStore, name: Word) -> Destination:
    """One of them."""
    found = [one for one in (await list_destinations(store)).items if one.name == name]
    if not found:
        raise NotFound(f"There is no destination {name!r}.", next="redrive destinations list")
    return found[0]


@router.post("/destinations/{name}/pause", dependencies=changes(Permission.ACT, all_tenants=True))
async def pause(store: ScopedStore, principal: CurrentPrincipal, name: Word, body: DestinationAct) -> Changed:
    """Send nothing there for now."""
    await operations.require_known(store, name)
    who: dict[str, Any] = {"actor": principal.name, "reason": body.reason}
    changed = not body.dry_run and await (
        store.pause(name, **who) if body.key is None else store.pause_key(name, body.key, **who)
    )
    return Changed(name=name, act="pause", dry_run=body.dry_run, changed=changed)


@router.post("/destinations/{name}/resume", dependencies=changes(Permission.ACT, all_tenants=True))
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


@router.post("/destinations/{name}/test", dependencies=changes(Permission.ACT, all_tenants=True))
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
