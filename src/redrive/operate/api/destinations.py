"""Destinations: their state, and pause, resume and test."""

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from redrive.errors import NotFound
from redrive.operate import operations
from redrive.operate.actions.model import Action
from redrive.operate.actions.table import DESTINATION_ACTIONS
from redrive.operate.api.schemas import ACTS_ON_ALL, READS_ALL, Word, body_of, given
from redrive.operate.destination_test import Tested
from redrive.operate.destinations import DestinationDetails, Destinations, destinations
from redrive.operate.web.dependencies import CurrentPrincipal, ScopedStore

router = APIRouter(tags=["destinations"])


class Changed(BaseModel):
    """changed: whether anything was; a dry run changes nothing."""

    name: str
    act: str
    dry_run: bool
    changed: bool


PAUSE, RESUME, TEST = DESTINATION_ACTIONS
DestinationAct: Any = body_of("DestinationAct", [PAUSE], dry_run=(bool, False))
Test: Any = body_of("Test", [TEST])


@router.get("/destinations", dependencies=READS_ALL)
async def list_destinations(store: ScopedStore) -> Destinations:
    """Every destination that was registered, was paused, or has open messages."""
    return await destinations(store)


@router.get("/destinations/{name}", dependencies=READS_ALL)
async def show_destination(store: ScopedStore, name: Word) -> DestinationDetails:
    """One of them."""
    found = [one for one in (await destinations(store)).items if one.name == name]
    if not found:
        raise NotFound(f"There is no destination {name!r}.", next="redrive destinations list")
    return found[0]


def _add_change(action: Action) -> None:
    @router.post(action.path, name=action.name, description=action.summary, dependencies=ACTS_ON_ALL)
    async def change(store: ScopedStore, principal: CurrentPrincipal, name: Word, body: DestinationAct) -> Changed:
        await operations.require_known(store, name)
        changed = not body.dry_run and await action.call(store, name, body.who(principal), **given(action, body))
        return Changed(name=name, act=action.name, dry_run=body.dry_run, changed=changed)


_add_change(PAUSE)
_add_change(RESUME)


@router.post(TEST.path, description=TEST.summary, dependencies=ACTS_ON_ALL)
async def test(store: ScopedStore, principal: CurrentPrincipal, name: Word, body: Test) -> Tested:
    tested: Tested = await TEST.call(store, name, body.who(principal), **given(TEST, body))
    return tested
