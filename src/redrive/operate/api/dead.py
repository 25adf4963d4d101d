"""Dead letters: the steps of their repair."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter
from pydantic import BaseModel, Field, JsonValue
from starlette.requests import Request

from redrive.errors import InvalidValue, NotFound
from redrive.message import MessageId
from redrive.operate import operations
from redrive.operate.api import schemas
from redrive.operate.api.mutation import changes
from redrive.operate.api.schemas import Acted, Text, Why, Word
from redrive.operate.api.selecting import Selection, SelectionWhy, selected
from redrive.operate.desk import workflow
from redrive.operate.desk.causes import Cause
from redrive.operate.operations import ActResult, Outcome
from redrive.operate.web import CurrentPrincipal, Permission, Refusal, ScopedStore, note_payload_read, require

router = APIRouter(tags=["dead"])
VALIDATE_SECONDS_MAX = 25.0


class Triage(SelectionWhy):
    cause: Cause
    owner: Word | None = None


class Remedy(SelectionWhy):
    """evidence, ticket: at least one of them."""

    evidence: Text | None = None
    ticket: Text | None = None


class Edit(Why):
    """patch: JSON Patch (RFC 6902). row_version: of the parked record that was looked at; 409 where it has changed."""

    patch: Annotated[list[dict[str, JsonValue]], Field(min_length=1, max_length=1000)]
    row_version: Annotated[int, Field(ge=1, lt=2**31)]
    dry_run: bool = False


class EditMany(SelectionWhy):
    patch: Annotated[list[dict[str, JsonValue]], Field(min_length=1, max_length=1000)]


class Edited(BaseModel):
    """before, after: only of a dry run."""

    result: ActResult
    before: str | None = None
    after: str | None = None


class Validate(SelectionWhy):
    """seconds: how long to wait for what relays say."""

    seconds: Annotated[float, Field(ge=0, le=VALIDATE_SECONDS_MAX)] = 0.0


@router.post("/dead/triage", dependencies=changes(Permission.ACT))
async def triage(store: ScopedStore, principal: CurrentPrincipal, body: Triage) -> Acted:
    """Say what the cause was."""
    chosen = await selected(store, principal, body)
    who = body.who(principal)
    return schemas.acted(await chosen.each(lambda ids: workflow.triage(store, ids, body.cause, who, owner=body.owner)))


@router.post("/dead/remediate", dependencies=changes(Permission.ACT))
async def remediate(store: ScopedStore, principal: CurrentPrincipal, body: Remedy) -> Acted:
    """Say what was done about it."""
    if body.evidence is None and body.ticket is None:
        raise InvalidValue("A remedy needs evidence or a ticket, or an edited payload.")
    chosen = await selected(store, principal, body)
    who = body.who(principal)
    return schemas.acted(
        await chosen.each(lambda ids: workflow.remediate(store, ids, who, evidence=body.evidence, ticket=body.ticket))
    )


@router.post("/dead/{id}/edit", dependencies=changes(Permission.ACT))
async def edit(request: Request, store: ScopedStore, principal: CurrentPrincipal, id: UUID, body: Edit) -> Edited:
    """Change the payload of one dead letter: a new version, beside the old one."""
    one = MessageId(id)
    parked = await operations.show_parked(store, one)
    if parked is None:
        raise NotFound(f"No message {id} is parked.", next="redrive messages list")
    if parked.row_version != body.row_version:
        raise _changed(one, parked.row_version)
    if body.dry_run:
        before, after = await workflow.preview(store, one, body.patch)
        await note_payload_read(request, one, "a dry run of an edit over the API")
        would = ActResult(id=one, outcome=Outcome.WOULD, detail="its payload would have a new version")
        return Edited(result=would, before=before.decode(), after=after.decode())
    who = body.who(principal)
    result = (await workflow.edit(store, [one], body.patch, who, row_version=body.row_version))[0]
    workflow.raise_refused(result)
    return Edited(result=result)


class Proposed(BaseModel):
    """A payload that one person has proposed for what moves money. sha256: of `after`, to approve this very one."""

    asked_by: str
    asked_at: datetime
    reason: str
    before: str
    after: str
    sha256: str


class Approval(Why):
    """sha256: of the payload that was looked at; 409 where another one is proposed by now."""

    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


@router.get("/dead/{id}/proposed", dependencies=[require(Permission.PAYLOAD)])
async def show_proposed(request: Request, store: ScopedStore, id: UUID) -> Proposed:
    """The payload that another person has proposed, beside the one of now. Who looks is kept in the audit."""
    before, proposed = await workflow.proposal(store, MessageId(id))
    await note_payload_read(request, MessageId(id), "a proposed edit was read over the API")
    return Proposed(
        asked_by=proposed.asked_by,
        asked_at=proposed.asked_at,
        reason=proposed.reason,
        before=before.decode(),
        after=proposed.body.decode(),
        sha256=proposed.sha256,
    )


@router.post("/dead/{id}/approve", dependencies=changes(Permission.ACT))
async def approve_edit(store: ScopedStore, principal: CurrentPrincipal, id: UUID, body: Approval) -> Edited:
    """Make the payload that another person has proposed the new version. 403 for who is no approver."""
    result = await workflow.approve_seen(store, MessageId(id), body.sha256, body.who(principal))
    workflow.raise_refused(result)
    return Edited(result=result)


def _changed(id_: MessageId, now: int) -> Refusal:
    detail = f"Message {id_} was changed by somebody since it was looked at; its row_version is {now}."
    return Refusal(409, "CHANGED", detail, row_version=now)


@router.post("/dead/edit", dependencies=changes(Permission.ACT))
async def edit_many(store: ScopedStore, principal: CurrentPrincipal, body: EditMany) -> Acted:
    """The same patch for many payloads; one that it does not fit is left as it was."""
    chosen = await selected(store, principal, body)
    who = body.who(principal)
    return schemas.acted(await chosen.each(lambda ids: workflow.edit(store, ids, body.patch, who)))


@router.post("/dead/validate", dependencies=changes(Permission.ACT))
async def validate(store: ScopedStore, principal: CurrentPrincipal, body: Validate) -> Acted:
    """Let relays look whether these could be sent. Nothing is sent."""
    chosen = await selected(store, principal, body)
    who = body.who(principal)
    return schemas.acted(await chosen.each(lambda ids: workflow.validate(store, ids, who, seconds=body.seconds)))


@router.post("/dead/ignore", dependencies=changes(Permission.ACT))
async def ignore(store: ScopedStore, principal: CurrentPrincipal, body: SelectionWhy) -> Acted:
    """Leave them parked without anybody having to look into them."""
    chosen = await selected(store, principal, body)
    who = body.who(principal)
    return schemas.acted(await chosen.each(lambda ids: workflow.ignore(store, ids, who)))


class Verify(Why):
    ids: schemas.Ids


@router.post("/dead/verify", dependencies=changes(Permission.ACT))
async def verify(store: ScopedStore, principal: CurrentPrincipal, body: Verify) -> Acted:
    """Say that replayed messages have arrived."""
    chosen = await selected(store, principal, Selection(ids=body.ids))
    who = body.who(principal)
    return schemas.acted(await chosen.each(lambda ids: workflow.verify(store, ids, who)))
