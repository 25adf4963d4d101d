"""Failure groups, and their status, owner and note."""

from typing import Annotated, Any

from fastapi import APIRouter, Query

from redrive.errors import InvalidValue
from redrive.operate import cursors
from redrive.operate.actions.model import Noun
from redrive.operate.actions.table import MARKS, find
from redrive.operate.api.schemas import ACTS_ON_ALL, READS_ALL, After, Limit, Word, body_of, given, names_of
from redrive.operate.api.selecting import GroupId
from redrive.operate.desk import groups
from redrive.operate.desk.groups import GroupDetails
from redrive.operate.documents import Listed, listed
from redrive.operate.web.dependencies import CurrentPrincipal, ScopedStore
from redrive.store.reads.models import GroupFilter, GroupPosition, GroupStatus, GroupView

router = APIRouter(tags=["groups"])


Mark: Any = names_of("Mark", MARKS)
GroupMark: Any = body_of("GroupMark", MARKS)


@router.get("/groups", dependencies=READS_ALL)
async def list_groups(
    store: ScopedStore,
    status: Annotated[list[GroupStatus], Query(max_length=5)] = [],  # noqa: B006 - FastAPI copies it
    all: bool = False,  # noqa: A002 - its name in the address
    destination: Word | None = None,
    after: After = None,
    limit: Limit = 50,
) -> Listed[GroupView]:
    """Failure groups that need a repair, or with `all` every one, latest failure first."""
    statuses = tuple(status) or (None if all else groups.NEEDS_REPAIR)
    wanted = GroupFilter(
        statuses=statuses, destination=destination, before=cursors.decode(GroupPosition, after), limit=limit
    )
    return listed(await groups.list_groups(store, wanted))


@router.get("/groups/{id}", dependencies=READS_ALL)
async def show_group(store: ScopedStore, id: GroupId) -> GroupDetails:
    """One group: its likely cause, what to do first, and its latest messages."""
    return await groups.group_details(store, id)


@router.post("/groups/{id}/{mark}", dependencies=ACTS_ON_ALL)
async def mark_group(
    store: ScopedStore, principal: CurrentPrincipal, id: GroupId, mark: Mark, body: GroupMark
) -> GroupView:
    """Resolve, reopen, snooze, ignore, assign or note."""
    action = find(Noun.GROUP, mark)
    for option in action.options:
        if option.required and getattr(body, option.name) is None:
            raise InvalidValue(f"{mark} needs a {option.name}.")
    marked: GroupView = await action.call(store, id, body.who(principal), **given(action, body))
    return marked
