"""Messages: lists by filter, and one with its whole life. An act on one message is asked about on a page of its own."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from starlette.responses import Response

from redrive.errors import InvalidValue
from redrive.message import MessageId, ParkReason, State, token
from redrive.operate import operations
from redrive.operate.console import display
from redrive.operate.console.calls import Call, redirect
from redrive.operate.console.jobs import Job
from redrive.operate.console.rendering import page
from redrive.operate.desk import workflow
from redrive.operate.operations import FITS, Act, ActResult, Request
from redrive.operate.web import Permission, note_payload_read
from redrive.store.reads.messages import STATES
from redrive.store.reads.models import MessageDetails, MessageFilter

PAGE: Final = 50
FILTERS: Final = ("destination", "tenant", "kind", "key")
TITLES: Final = {
    Act.REQUEUE: "Send it again",
    Act.CANCEL: "Cancel it",
    Act.CONFIRM: "Confirm that it happened",
    Act.DENY: "It did not happen: send it again",
    Act.REPAIR: "Record its answer again",
    Act.DISCARD: "Discard it for good",
}


async def list_(call: Call) -> Response:
    """By filter, newest first; the filter is the URL."""
    wanted = {name: call.given(name) for name in FILTERS}
    found = await operations.list_messages(
        call.store, MessageFilter(**wanted, state=call.given("state"), before=_id(call.given("before")), limit=PAGE)
    )
    return page(
        call, "messages.html", title="Messages", found=found, wanted=wanted, state=call.given("state"), states=STATES
    )


async def show(call: Call) -> Response:
    """One message, its payload hidden."""
    return await _page(call, reveal=False)


async def reveal(call: Call) -> Response:
    """The same with its payload, for who may read it and says why."""
    call.require(Permission.PAYLOAD)
    await operations.show_message(call.store, call.message_id())
    await note_payload_read(call.request, call.message_id(), call.reason())
    return await _page(call, reveal=True)


async def _page(call: Call, *, reveal: bool) -> Response:
    may = call.principal.may(Permission.PAYLOAD)
    details = await operations.show_message(call.store, call.message_id(), payload=may)
    body = details.payload
    return page(
        call,
        "message.html",
        title=f"{details.view.kind or 'Message'} → {details.view.destination}",
        details=details,
        view=details.view,
        now=await call.store.now(),
        payload=display.payload(body.body, body.content_type, reveal=reveal) if body else None,
        headers=display.headers(body.headers, reveal=reveal) if body else (),
        revealed=reveal,
        acts=fitting_acts(details),
        titles=TITLES,
        token=details.token or token(details.view.id, details.view.version, details.view.stage),
        origin=f"{call.request.url.scheme}://{call.request.url.netloc}{call.prefix}",
    )


def fitting_acts(details: MessageDetails) -> list[Act]:
    """What can be done with it as it stands."""
    view = details.view
    place = view.detail if view.state == State.PARKED and view.detail else view.state
    return [act for act in Act if place in FITS[act]]


async def ask(call: Call) -> Response:
    """What an act would do to this message, and the form that does it."""
    act = _act(call)
    request = Request(act=act, actor=call.principal.name, reason="preview", out_of_order=True)
    (judged,) = await operations.preview(call.store, request, [call.message_id()])
    view = (await operations.show_message(call.store, call.message_id())).view
    return page(call, "act.html", title=TITLES[act], act=act, judged=judged, view=view)


async def perform(call: Call) -> Response:
    """The act itself."""
    call.require(Permission.ACT)
    act, id_ = _act(call), call.message_id()
    request = Request(
        act=act,
        actor=call.principal.name,
        reason=call.reason(),
        reference=call.field("reference") if act is Act.CONFIRM else None,
        out_of_order=call.field("out_of_order") == "yes",
    )

    lacking: list[ActResult] = []

    async def doing(job: Job) -> None:
        results = await operations.perform(call.store, request, [id_])
        lacking.extend(result for result in results if result.needs_approver)
        job.add(results)

    back = call.url(f"/messages/{id_}")
    response = await call.carry_out(f"{act.capitalize()}: done for", doing, back=back, total=1)
    for result in lacking:
        workflow.raise_refused(result)
    return response


async def find(call: Call) -> Response:
    """Whatever somebody pasted: an id, the beginning of a group's id, or an idempotency key."""
    wanted = call.given("q", limit=500) or ""
    try:
        return redirect(call.url(f"/messages/{UUID(wanted)}"))
    except ValueError:
        pass
    if call.principal.all_tenants and 8 <= len(wanted) <= 64 and set(wanted.lower()) <= set("0123456789abcdef"):
        return redirect(call.url(f"/groups/{wanted.lower()}"))
    return redirect(call.url("/messages", key=wanted))


def _act(call: Call) -> Act:
    try:
        return Act(call.path("act"))
    except ValueError:
        raise InvalidValue(f"There is no act {call.path('act')[:50]!r}.") from None


def _id(text: str | None) -> MessageId | None:
    try:
        return MessageId(UUID(text)) if text else None
    except ValueError:
        raise InvalidValue(f"{text!r} is no position; use the link that a page ends with.") from None


REASONS: Final = {
    ParkReason.DEAD: ("Dead letters", "could not be delivered"),
    ParkReason.HELD: ("Held", "may have happened, and nobody can tell"),
    ParkReason.UNRECORDED: ("Unrecorded", "were answered, and recording the answer failed"),
}
