"""The editor: one payload is changed by hand, and the change is carried over to the whole group as a JSON Patch.

How many of the others it fits, and what it would overwrite there, is said before anything is saved.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from uuid import UUID

from starlette.responses import Response

from redrive.errors import InvalidValue, RedriveError
from redrive.message import JSON_CONTENT, MessageId, ParkReason, is_json
from redrive.operate import operations
from redrive.operate.actions.table import EDIT
from redrive.operate.console import display
from redrive.operate.console.calls import Call, redirect
from redrive.operate.console.pages.groups import as_of, at_steps
from redrive.operate.console.rendering import page
from redrive.operate.desk import groups, json_patch, workflow
from redrive.operate.web.dependencies import note_payload_read
from redrive.operate.web.principal import Permission
from redrive.store.reads.dashboard import Sample, group_samples
from redrive.store.reads.models import GroupView, MessageDetails, ParkedFilter

EDITABLE: Final = EDIT.steps
TEXT_MAX: Final = 400_000  # characters of a payload that is edited
SAMPLES: Final = 200


@dataclass(frozen=True, slots=True)
class Effect:
    """What one change does to the other messages of the group. overwrites: how many different values it replaces."""

    path: str
    does: str
    same: int
    missing: int
    overwrites: int


@dataclass(frozen=True, slots=True)
class Looked:
    """A change that was looked at. problem: why it cannot be saved, and in which line of the text."""

    rows: Sequence[display.DiffRow | None] = ()
    patch: Sequence[dict[str, Any]] = ()
    problem: str = ""
    line: int | None = None
    fits: int = 0
    sampled: int = 0
    effects: Sequence[Effect] = ()

    @property
    def changed(self) -> bool:
        return bool(self.patch) and not self.problem


async def show(call: Call) -> Response:
    group, details = await _opened(call)
    await note_payload_read(call.request, details.view.id, "the editor was opened")
    return await _editor(call, group, details, display.pretty(_body(details).decode()), Looked())


async def check(call: Call) -> Response:
    group, details = await _opened(call)
    text = _text(call)
    looked = look(_body(details), text, await group_samples(call.store, group.fingerprint, limit=SAMPLES))
    return await _editor(call, group, details, text, looked)


async def _editor(call: Call, group: GroupView, details: MessageDetails, after: str, looked: Looked) -> Response:
    return page(
        call,
        "edit_check.html" if "hx-request" in call.request.headers and call.form else "edit.html",
        title="Edit payload",
        group=group,
        details=details,
        before=display.pretty(_body(details).decode()),
        after=after,
        looked=looked,
        at=await call.store.now(),
        count=len(await at_steps(call.store, group, EDITABLE, until=as_of(call))),
    )


async def save(call: Call) -> Response:
    call.require(Permission.ACT)
    group, details = await _opened(call)
    looked = look(_body(details), _text(call), [])
    if looked.problem or not looked.patch:
        raise InvalidValue(looked.problem or "Nothing was changed.")
    alone = call.field("scope") == "one"
    ids = [details.view.id] if alone else await at_steps(call.store, group, EDITABLE, until=as_of(call))
    return await call.carry_out_on_many(EDIT, ids, back=f"/groups/{group.id}", size=1, patch=list(looked.patch))


async def proposed(call: Call) -> Response:
    call.require(Permission.PAYLOAD)
    before, wanted = await workflow.proposal(call.store, call.message_id())
    details = await operations.show_message(call.store, call.message_id())
    await note_payload_read(call.request, details.view.id, "a proposed edit was opened")
    return page(
        call,
        "proposed.html",
        title="Proposed payload",
        view=details.view,
        wanted=wanted,
        rows=display.side_by_side(display.pretty(before.decode()), display.pretty(wanted.body.decode())),
        mine=wanted.asked_by == call.principal.name,
        now=await call.store.now(),
    )


async def approve(call: Call) -> Response:
    call.require(Permission.PAYLOAD)
    call.require(Permission.ACT)
    id_, seen, who = call.message_id(), call.field("sha256") or "", call.who()
    act = partial(workflow.approve_seen, call.store, id_, seen, who)
    return await call.carry_out_on_one(EDIT.said, act, back=f"/messages/{id_}")


async def start(call: Call) -> Response:
    details = await operations.show_message(call.store, call.message_id())
    if details.parked is None or not details.parked.failure_group:
        raise InvalidValue("Only a dead letter can be edited.")
    return redirect(call.url(f"/groups/{details.parked.failure_group}/edit", message=details.view.id))


def look(body: bytes, text: str, samples: Sequence[Sample]) -> Looked:
    """Pure: the text against the body, and its change against the samples."""
    before = display.pretty(body.decode())
    try:
        wanted = json.loads(text, parse_float=workflow.exact)
        patch = json_patch.difference(json.loads(body, parse_float=workflow.exact), wanted)
        if patch:
            workflow.patched(body, JSON_CONTENT, patch)
    except json.JSONDecodeError as error:
        return Looked(
            problem=f"This is not JSON: {error.msg}, line {error.lineno}, column {error.colno}.", line=error.lineno
        )
    except RecursionError:
        return Looked(problem="It is nested too deeply.")
    except RedriveError as error:
        return Looked(problem=str(error))
    bodies = [sample.body for sample in samples]
    return Looked(
        rows=display.side_by_side(before, display.pretty(text)) if patch else (),
        patch=patch,
        fits=sum(_fits(one, patch) for one in bodies) if patch else 0,
        sampled=len(bodies),
        effects=[_effect(operation, json.loads(body), bodies) for operation in patch],
    )


def _fits(body: bytes, patch: Sequence[dict[str, Any]]) -> bool:
    try:
        workflow.patched(body, JSON_CONTENT, list(patch))
    except (RedriveError, ValueError):
        return False
    return True


_NOTHING: Final = object()


def _effect(operation: dict[str, Any], here: Any, bodies: Sequence[bytes]) -> Effect:
    path = operation["path"]
    mine = _at(here, path)
    others = [_at(json.loads(body), path) for body in bodies]
    present = [one for one in others if one is not _NOTHING]
    different = {json.dumps(one, sort_keys=True) for one in present if one is not None}
    counted = Counter(json.dumps(one, sort_keys=True) for one in present)
    return Effect(
        path=path,
        does="is removed" if operation["op"] == "remove" else "is set",
        same=len(others) - len(present) if mine is _NOTHING else counted[json.dumps(mine, sort_keys=True)],
        missing=len(others) - len(present),
        overwrites=len(different) if len(different) > 1 else 0,
    )


def _at(document: Any, path: str) -> Any:
    try:
        return json_patch.value_at(document, path)
    except InvalidValue:
        return _NOTHING


async def _opened(call: Call) -> tuple[GroupView, MessageDetails]:
    call.require(Permission.PAYLOAD)
    group = await groups.find_group(call.store, call.path("group"))
    return group, await _message(call, group)


async def _message(call: Call, group: GroupView) -> MessageDetails:
    """The one that is named, or the latest of the group that can be edited."""
    named = call.given("message") or call.field("message")
    if named:
        try:
            return await operations.show_message(call.store, MessageId(UUID(named)), payload=True)
        except ValueError:
            raise InvalidValue(f"{named!r} is no message id.") from None
    wanted = ParkedFilter(reason=ParkReason.DEAD, failure_group=group.fingerprint, limit=50)
    rows = (await operations.list_parked(call.store, wanted)).rows
    if not rows:
        raise InvalidValue("The group has no dead letters any more.")
    chosen = next((row for row in rows if row.workflow in EDITABLE and row.in_doubt_since is None), rows[0])
    return await operations.show_message(call.store, chosen.id, payload=True)


def _body(details: MessageDetails) -> bytes:
    assert details.payload is not None
    if not is_json(details.payload.content_type):
        raise InvalidValue(f"The payload is {details.payload.content_type}; only JSON can be edited.")
    return details.payload.body


def _text(call: Call) -> str:
    value = call.form.get("after")
    text = value if isinstance(value, str) else ""
    if len(text) > TEXT_MAX:
        raise InvalidValue(f"The payload has {len(text):,} characters; it must have at most {TEXT_MAX:,}.")
    return text
