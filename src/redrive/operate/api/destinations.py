"""Destinations: their state, and pause, resume and test."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from fastapi import APIRouter
from pydantic import BaseModel

from redrive.errors import NotFound
from redrive.operate import operations
from redrive.operate.actions.model import Action
from redrive.operate.actions.table import DESTINATION_ACTIONS
from redrive.operate.api.bodies import body_of, given
from redrive.operate.api.mutation import changes
from redrive.operate.api.schemas import Word
from redrive.operate.web import CurrentPrincipal, Permission, ScopedStore, require
from redrive.ports import LimitKeyState
from redrive.store.reads.models import DestinationView
from redrive.store.reads.status import Backlog

router = APIRouter(tags=["destinations"])
_SEES_ALL = require(Permission.READ, all_tenants=True)
_CHANGES = changes(Permission.ACT, all_tenants=True)
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


PAUSE, RESUME, TEST = DESTINATION_ACTIONS
DestinationAct: Any = body_of("DestinationAct", [PAUSE], dry_run=(bool, False))
Test: Any = body_of("Test", [TEST])


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


@router.post(PAUSE.path, description=PAUSE.summary, dependencies=_CHANGES)
async def pause(store: ScopedStore, principal: CurrentPrincipal, name: Word, body: DestinationAct) -> Changed:
    return await _changed(store, principal, PAUSE, name, body)


@router.post(RESUME.path, description=RESUME.summary, dependencies=_CHANGES)
async def resume(store: ScopedStore, principal: CurrentPrincipal, name: Word, body: DestinationAct) -> Changed:
    return await _changed(store, principal, RESUME, name, body)


async def _changed(store: ScopedStore, principal: CurrentPrincipal, action: Action, name: str, body: Any) -> Changed:
    await operations.require_known(store, name)
    changed = not body.dry_run and await action.call(store, name, body.who(principal), **given(action, body))
    return Changed(name=name, act=action.name, dry_run=body.dry_run, changed=changed)


class Tested(BaseModel):
    """answered: None where no relay took the message in time, or it has not come back."""

    name: str
    answered: bool | None
    message_id: UUID | None
    answer: str | None
    code: str | None
    known: DestinationView


@router.post(TEST.path, description=TEST.summary, dependencies=_CHANGES)
async def test(store: ScopedStore, principal: CurrentPrincipal, name: Word, body: Test) -> Tested:
    probed = await TEST.call(store, name, body.who(principal), **given(TEST, body))
    return Tested(
        name=name,
        answered=probed.answered,
        message_id=probed.id,
        answer=probed.answer,
        code=probed.code,
        known=probed.destination,
    )
