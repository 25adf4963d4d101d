"""Messages: the lists, one with its whole life, its payload, and what can be done to one or to many."""

from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import APIRouter, Query
from starlette.requests import Request

from redrive.errors import NotFound
from redrive.message import MessageId, ParkReason
from redrive.operate import cursors, operations
from redrive.operate.actions import messages as acts
from redrive.operate.actions.model import Action
from redrive.operate.actions.results import ActResult, Outcome, raise_refused
from redrive.operate.actions.table import COPY, MESSAGE_ACTIONS
from redrive.operate.api import schemas
from redrive.operate.api.schemas import (
    ACTS,
    READS,
    Acted,
    After,
    Key,
    Limit,
    Made,
    Word,
    body_of,
    changes,
    given,
    names_of,
)
from redrive.operate.api.selecting import tenant_of, visible
from redrive.operate.documents import Listed, listed
from redrive.operate.web.dependencies import CurrentPrincipal, ScopedStore, note_payload_read, require, require_visible
from redrive.operate.web.principal import Permission
from redrive.store.reads.messages import STATES
from redrive.store.reads.models import (
    MessageDetails,
    MessageFilter,
    MessageView,
    ParkedFilter,
    ParkedPosition,
    ParkedRecord,
    Payload,
)

router = APIRouter(tags=["messages"])


VERBS: Final = {action.name: action for action in MESSAGE_ACTIONS if not action.single}
Act: Any = names_of("Act", VERBS.values())
_COMMON: Final[dict[str, Any]] = {"only": (ParkReason | None, None), "dry_run": (bool, False)}
MessageAct: Any = body_of("MessageAct", list(VERBS.values()), **_COMMON)
ManyActs: Any = body_of("ManyActs", list(VERBS.values()), **_COMMON, act=(Act, ...), ids=(schemas.Ids, ...))
Copy: Any = body_of("Copy", [COPY])


@router.get("/messages", dependencies=READS)
async def list_messages(
    store: ScopedStore,
    principal: CurrentPrincipal,
    state: Annotated[str | None, Query(description=f"One of {', '.join(STATES)}.", max_length=100)] = None,
    destination: Word | None = None,
    tenant: Word | None = None,
    kind: Word | None = None,
    key: Key | None = None,
    after: After = None,
    limit: Limit = 50,
) -> Listed[MessageView]:
    """Messages, newest first."""
    wanted = MessageFilter(
        state=state,
        destination=destination,
        tenant=tenant_of(principal, tenant),
        kind=kind,
        key=key,
        before=cursors.decode(MessageId, after),
        limit=limit,
    )
    return listed(await operations.list_messages(store, wanted))


@router.get("/messages/{id}", dependencies=READS)
async def show_message(store: ScopedStore, id: UUID) -> MessageDetails:
    """One message with its attempts, acts, and what it waits for; not what it carries."""
    return await operations.show_message(store, MessageId(id))


@router.get("/messages/{id}/payload", dependencies=[require(Permission.PAYLOAD)])
async def show_payload(request: Request, store: ScopedStore, id: UUID) -> Payload:
    """What it carries, as it was last edited. The audit keeps each reading."""
    details = await operations.show_message(store, MessageId(id), payload=True)
    assert details.payload is not None
    await note_payload_read(request, MessageId(id), "read over the API")
    return details.payload


@router.post("/messages/{id}/copy", status_code=201, description=COPY.summary, dependencies=changes(COPY.permission))
async def copy_message(store: ScopedStore, principal: CurrentPrincipal, id: UUID, body: Copy) -> Made:
    await require_visible(store, MessageId(id))
    copied = await COPY.call(store, MessageId(id), body.who(principal), key=body.key)
    return Made(id=copied)


@router.post("/messages/{id}/{act}", dependencies=ACTS)
async def act_on_one(
    store: ScopedStore, principal: CurrentPrincipal, id: UUID, act: Act, body: MessageAct
) -> ActResult:
    """One verb on one message. 409 where it does not fit its state.

    Where it moves money two people ask for the same; 403 where the second one is no approver.
    """
    result = (await _acted(store, principal, VERBS[act], [id], body))[0]
    if result.outcome is Outcome.NOT_FOUND:
        raise NotFound.message_of(id)
    raise_refused(result)
    return result


@router.post("/acts", dependencies=ACTS)
async def act_on_many(store: ScopedStore, principal: CurrentPrincipal, body: ManyActs) -> Acted:
    """The same for many: each on its own, and what became of each."""
    return schemas.acted(await _acted(store, principal, VERBS[body.act], body.ids, body))


async def _acted(
    store: ScopedStore, principal: CurrentPrincipal, action: Action, ids: list[UUID], body: Any
) -> list[ActResult]:
    chosen = await visible(store, ids)
    wanted = acts.Request(action=action, who=body.who(principal), options=given(action, body), only=body.only)
    does = acts.preview if body.dry_run else acts.perform
    return await chosen.each(lambda some: does(store, wanted, some))


@router.get("/parked", dependencies=READS)
async def list_parked(
    store: ScopedStore,
    principal: CurrentPrincipal,
    reason: ParkReason,
    destination: Word | None = None,
    tenant: Word | None = None,
    kind: Word | None = None,
    error_class: Word | None = None,
    group: Annotated[
        str | None, Query(pattern="^[0-9a-f]{32}$", description="The whole id of a failure group.")
    ] = None,
    after: After = None,
    limit: Limit = 50,
) -> Listed[ParkedRecord]:
    """What waits for a person, latest first: dead, held or unrecorded."""
    wanted = ParkedFilter(
        reason=reason,
        destination=destination,
        tenant=tenant_of(principal, tenant),
        kind=kind,
        error_class=error_class,
        failure_group=bytes.fromhex(group) if group else None,
        before=cursors.decode(ParkedPosition, after),
        limit=limit,
    )
    return listed(await operations.list_parked(store, wanted))


@router.get("/parked/{id}", dependencies=READS)
async def show_parked(store: ScopedStore, id: UUID) -> ParkedRecord:
    """One of them. `row_version` counts what people changed about it."""
    found = await operations.show_parked(store, MessageId(id))
    if found is None:
        raise NotFound(f"No message {id} is parked.", next="redrive messages list")
    return found
