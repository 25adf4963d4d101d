"""The way of dead letters, failure groups, and replays."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field, JsonValue
from starlette.requests import Request

from redrive.errors import InvalidValue, NotFound
from redrive.message import MessageId, ParkReason
from redrive.operate import operations
from redrive.operate.api import cursors, schemas
from redrive.operate.api.messages import After
from redrive.operate.api.mutation import changes
from redrive.operate.api.schemas import Acted, Group, Limit, Listed, OneGroup, PlanShown, Text, Why, Word
from redrive.operate.api.selecting import Filter, GroupId, Selection, SelectionWhy, group_of, selected, tenant_of
from redrive.operate.desk import groups, replays, workflow
from redrive.operate.desk.causes import Cause
from redrive.operate.desk.groups import Mark, Marking
from redrive.operate.desk.replays import NewReplay, Steering
from redrive.operate.operations import ActResult, Outcome
from redrive.operate.web import (
    CurrentPrincipal,
    Permission,
    Refusal,
    ScopedStore,
    note_payload_read,
    require,
)
from redrive.operate.web.idempotency import key_hash, key_of
from redrive.store.reads.models import GroupFilter, GroupStatus, Page, ParkedFilter, ReplayItem, ReplayView

router = APIRouter()
SAMPLES = 5
VALIDATE_SECONDS_MAX = 25.0

# dead letters


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


@router.post("/dead/triage", tags=["dead"], dependencies=changes(Permission.ACT))
async def triage(store: ScopedStore, principal: CurrentPrincipal, body: Triage) -> Acted:
    """Say what the cause was."""
    chosen = await selected(store, principal, body)
    who = body.who(principal)
    return schemas.acted(await chosen.each(lambda ids: workflow.triage(store, ids, body.cause, who, owner=body.owner)))


@router.post("/dead/remediate", tags=["dead"], dependencies=changes(Permission.ACT))
async def remediate(store: ScopedStore, principal: CurrentPrincipal, body: Remedy) -> Acted:
    """Say what was done about it."""
    if body.evidence is None and body.ticket is None:
        raise InvalidValue("A remedy needs evidence or a ticket, or an edited payload.")
    chosen = await selected(store, principal, body)
    who = body.who(principal)
    return schemas.acted(
        await chosen.each(lambda ids: workflow.remediate(store, ids, who, evidence=body.evidence, ticket=body.ticket))
    )


@router.post("/dead/{id}/edit", tags=["dead"], dependencies=changes(Permission.ACT))
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


@router.get("/dead/{id}/proposed", tags=["dead"], dependencies=[require(Permission.PAYLOAD)])
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


@router.post("/dead/{id}/approve", tags=["dead"], dependencies=changes(Permission.ACT))
async def approve_edit(store: ScopedStore, principal: CurrentPrincipal, id: UUID, body: Approval) -> Edited:
    """Make the payload that another person has proposed the new version. 403 for who is no approver."""
    result = await workflow.approve_seen(store, MessageId(id), body.sha256, body.who(principal))
    workflow.raise_refused(result)
    return Edited(result=result)


def _changed(id_: MessageId, now: int) -> Refusal:
    detail = f"Message {id_} was changed by somebody since it was looked at; its row_version is {now}."
    return Refusal(409, "CHANGED", detail, row_version=now)


@router.post("/dead/edit", tags=["dead"], dependencies=changes(Permission.ACT))
async def edit_many(store: ScopedStore, principal: CurrentPrincipal, body: EditMany) -> Acted:
    """The same patch for many payloads; one that it does not fit is left as it was."""
    chosen = await selected(store, principal, body)
    who = body.who(principal)
    return schemas.acted(await chosen.each(lambda ids: workflow.edit(store, ids, body.patch, who)))


@router.post("/dead/validate", tags=["dead"], dependencies=changes(Permission.ACT))
async def validate(store: ScopedStore, principal: CurrentPrincipal, body: Validate) -> Acted:
    """Let relays look whether these could be sent. Nothing is sent."""
    chosen = await selected(store, principal, body)
    who = body.who(principal)
    return schemas.acted(await chosen.each(lambda ids: workflow.validate(store, ids, who, seconds=body.seconds)))


@router.post("/dead/ignore", tags=["dead"], dependencies=changes(Permission.ACT))
async def ignore(store: ScopedStore, principal: CurrentPrincipal, body: SelectionWhy) -> Acted:
    """Leave them parked without anybody having to look into them."""
    chosen = await selected(store, principal, body)
    who = body.who(principal)
    return schemas.acted(await chosen.each(lambda ids: workflow.ignore(store, ids, who)))


class Verify(Why):
    ids: schemas.Ids


@router.post("/dead/verify", tags=["dead"], dependencies=changes(Permission.ACT))
async def verify(store: ScopedStore, principal: CurrentPrincipal, body: Verify) -> Acted:
    """Say that replayed messages have arrived."""
    chosen = await selected(store, principal, Selection(ids=body.ids))
    who = body.who(principal)
    return schemas.acted(await chosen.each(lambda ids: workflow.verify(store, ids, who)))


# groups


class GroupMark(Why):
    """value: the owner to assign, or the note. hours: of a snooze."""

    value: Text | None = None
    hours: Annotated[float | None, Field(gt=0, le=2160)] = None


_GROUPS_READ = require(Permission.READ, all_tenants=True)


@router.get("/groups", tags=["groups"], dependencies=[_GROUPS_READ])
async def list_groups(
    store: ScopedStore,
    status: Annotated[list[GroupStatus], Query(max_length=5)] = [],  # noqa: B006 - FastAPI copies it
    all: bool = False,  # noqa: A002 - its name in the address
    destination: Word | None = None,
    after: After = None,
    limit: Limit = 50,
) -> Listed[Group]:
    """Failure groups that need somebody, or with `all` every one, latest failure first."""
    statuses = tuple(status) or (None if all else groups.NEEDS_SOMEBODY)
    wanted = GroupFilter(statuses=statuses, destination=destination, before=cursors.to_group(after), limit=limit)
    page = await groups.list_groups(store, wanted)
    rows = [schemas.group(one) for one in page.rows]
    return schemas.listed(Page(rows, page.at, page.next), cursors.of_group)


@router.get("/groups/{id}", tags=["groups"], dependencies=[_GROUPS_READ])
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


@router.post("/groups/{id}/{mark}", tags=["groups"], dependencies=changes(Permission.ACT, all_tenants=True))
async def mark_group(
    store: ScopedStore, principal: CurrentPrincipal, id: GroupId, mark: Mark, body: GroupMark
) -> Group:
    """Resolve, reopen, snooze, ignore, assign or note."""
    if mark in {"assign", "note"} and body.value is None:
        raise InvalidValue(f"{mark} needs a value.")
    marking = Marking(
        mark=mark,
        actor=principal.name,
        reason=body.reason,
        value=body.value,
        snooze=None if body.hours is None else timedelta(hours=body.hours),
    )
    return schemas.group(await groups.mark(store, id, marking))


# replays


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


@router.get("/replays", tags=["replays"], dependencies=[require(Permission.READ)])
async def list_replays(
    store: ScopedStore, unfinished: bool = False, after: After = None, limit: Limit = 20
) -> Listed[ReplayView]:
    """Replays, latest first; who sees one tenant sees those that were made for it alone."""
    page = await replays.list_replays(store, finished=not unfinished, before=cursors.to_id(after), limit=limit)
    return schemas.listed(page, cursors.of_id)


@router.post("/replays/plan", tags=["replays"], dependencies=changes(Permission.ACT))
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


@router.post("/replays", tags=["replays"], status_code=201, dependencies=changes(Permission.ACT))
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


@router.get("/replays/{id}", tags=["replays"], dependencies=[require(Permission.READ)])
async def show_replay(store: ScopedStore, id: UUID) -> ReplayView:
    """How far it is."""
    return await replays.find(store, str(id))


@router.get("/replays/{id}/items", tags=["replays"], dependencies=[require(Permission.READ)])
async def list_items(
    store: ScopedStore, id: UUID, outcome: Word | None = None, after: After = None, limit: Limit = 50
) -> Listed[ReplayItem]:
    """Its messages, in the order in which they go, and what became of each."""
    replay = await replays.find(store, str(id))
    page = await replays.list_items(store, replay.id, outcome=outcome, after=cursors.to_number(after) or 0, limit=limit)
    return schemas.listed(page, cursors.of_number)


@router.post("/replays/{id}/approve", tags=["replays"], dependencies=changes(Permission.APPROVE))
async def approve_replay(store: ScopedStore, principal: CurrentPrincipal, id: UUID, body: Why) -> ReplayView:
    """Let a replay go that moves money and that another person has made."""
    return await _steered(store, principal, id, "approve", body)


@router.post("/replays/{id}/{act}", tags=["replays"], dependencies=changes(Permission.ACT))
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
