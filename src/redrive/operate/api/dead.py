"""Dead letters: the steps of their repair."""

from datetime import datetime
from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.requests import Request

from redrive.message import MessageId
from redrive.operate.actions.model import Action
from redrive.operate.actions.results import ActResult, Outcome, raise_refused
from redrive.operate.actions.table import EDIT, STEPS
from redrive.operate.api import schemas
from redrive.operate.api.messages import show_parked
from redrive.operate.api.schemas import ACTS, Acted, Why, body_of, changes, given
from redrive.operate.api.selecting import Selection, SelectionWhy, selected
from redrive.operate.desk import workflow
from redrive.operate.web.dependencies import CurrentPrincipal, ScopedStore, note_payload_read, require
from redrive.operate.web.principal import Permission
from redrive.operate.web.problems import Refusal

router = APIRouter(tags=["dead"])


_SEEN: Final = Field(ge=1, lt=2**31, description="Of the parked record that was looked at; 409 where it has changed.")
Edit: Any = body_of("Edit", [EDIT], row_version=(Annotated[int, _SEEN], ...), dry_run=(bool, False))


class Edited(BaseModel):
    """before, after: only of a dry run."""

    result: ActResult
    before: str | None = None
    after: str | None = None


@router.post("/dead/{id}/edit", dependencies=ACTS)
async def edit(request: Request, store: ScopedStore, principal: CurrentPrincipal, id: UUID, body: Edit) -> Edited:
    """Change the payload of one dead letter: a new version, beside the old one."""
    one = MessageId(id)
    parked = await show_parked(store, id)
    if parked.row_version != body.row_version:
        detail = f"Message {id} was changed after it was read; its row_version is {parked.row_version}."
        raise Refusal(409, "CHANGED", detail, row_version=parked.row_version)
    if body.dry_run:
        before, after = await workflow.preview(store, one, body.patch)
        await note_payload_read(request, one, "a dry run of an edit over the API")
        would = ActResult(id=one, outcome=Outcome.WOULD, detail="its payload would have a new version")
        return Edited(result=would, before=before.decode(), after=after.decode())
    who = body.who(principal)
    result = (await workflow.edit(store, [one], body.patch, who, row_version=body.row_version))[0]
    raise_refused(result)
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
    """The payload that another person has proposed, beside the one of now. The audit keeps each reading."""
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


@router.post("/dead/{id}/approve", dependencies=ACTS)
async def approve_edit(store: ScopedStore, principal: CurrentPrincipal, id: UUID, body: Approval) -> Edited:
    """Make the payload that another person has proposed the new version. 403 unless the principal is an approver."""
    result = await workflow.approve_seen(store, MessageId(id), body.sha256, body.who(principal))
    raise_refused(result)
    return Edited(result=result)


def _add(action: Action) -> None:
    name = "edit_many" if action.name == "edit" else action.name  # `edit` is the route for one message
    if action.by_filter:
        model = body_of(name.title().replace("_", ""), [action], base=SelectionWhy)
    else:
        model = body_of(name.title(), [action], ids=(schemas.Ids, ...))

    async def step(store: ScopedStore, principal: CurrentPrincipal, body: Any) -> Acted:
        wanted = body if action.by_filter else Selection(ids=body.ids)
        chosen, who = await selected(store, principal, wanted), body.who(principal)
        return schemas.acted(await chosen.each(lambda ids: action.call(store, ids, who, **given(action, body))))

    step.__annotations__["body"] = model
    add = router.post(action.path, name=name, description=action.summary, dependencies=changes(action.permission))
    add(step)


for one in STEPS:
    _add(one)
