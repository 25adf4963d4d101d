"""Failure groups, and what a person says of one."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query

from redrive.errors import InvalidValue
from redrive.message import ParkReason
from redrive.operate import operations
from redrive.operate.actions.table import MARKS, by_name
from redrive.operate.api import cursors, schemas
from redrive.operate.api.bodies import body_of, given
from redrive.operate.api.mutation import changes
from redrive.operate.api.paging import After
from redrive.operate.api.schemas import Group, Limit, Listed, OneGroup, Word
from redrive.operate.api.selecting import GroupId
from redrive.operate.desk import groups
from redrive.operate.web import CurrentPrincipal, Permission, ScopedStore, require
from redrive.store.reads.models import GroupFilter, GroupStatus, Page, ParkedFilter

router = APIRouter(tags=["groups"])
SAMPLES = 5


ACTIONS: Final = by_name(MARKS)
Mark = StrEnum("Mark", {name.upper(): name for name in ACTIONS})  # type: ignore[misc] # one member for each row
GroupMark: Any = body_of("GroupMark", MARKS)
_GROUPS_READ = require(Permission.READ, all_tenants=True)


@router.get("/groups", dependencies=[_GROUPS_READ])
async def list_groups(
    store: ScopedStore,
    status: Annotated[list[GroupStatus], Query(max_length=5)] = [],  # noqa: B006 - FastAPI copies it
    all: bool = False,  # noqa: A002 - its name in the address
    destination: Word | None = None,
    after: After = None,
    limit: Limit = 50,
) -> Listed[Group]:
    """Failure groups that need a repair, or with `all` every one, latest failure first."""
    statuses = tuple(status) or (None if all else groups.NEEDS_SOMEBODY)
    wanted = GroupFilter(statuses=statuses, destination=destination, before=cursors.to_group(after), limit=limit)
    page = await groups.list_groups(store, wanted)
    rows = [schemas.group(one) for one in page.rows]
    return schemas.listed(Page(rows, page.at, page.next), cursors.of_group)


@router.get("/groups/{id}", dependencies=[_GROUPS_READ])
async def show_group(store: ScopedStore, id: GroupId) -> OneGroup:
    """One group: its likely cause, what to do first, and its latest messages."""
    found, advice = await groups.show_group(store, id)
    wanted = ParkedFilter(reason=ParkReason.DEAD, failure_group=found.fingerprint, limit=SAMPLES)
    page = await operations.list_parked(store, wanted)
    return OneGroup(
        group=schemas.group(found),
        likely_cause=advice.cause,
        first=advice.first,
        runbook=advice.runbook,
        messages=page.rows,
    )


@router.post("/groups/{id}/{mark}", dependencies=changes(Permission.ACT, all_tenants=True))
async def mark_group(
    store: ScopedStore, principal: CurrentPrincipal, id: GroupId, mark: Mark, body: GroupMark
) -> Group:
    """Resolve, reopen, snooze, ignore, assign or note."""
    action = ACTIONS[mark]
    for option in action.options:
        if option.required and getattr(body, option.name) is None:
            raise InvalidValue(f"{mark} needs a {option.name}.")
    return schemas.group(await action.call(store, id, body.who(principal), **given(action, body)))
