"""Messages: lists by filter, one with its whole life, and the page on which a verb is done to one."""

from typing import Final
from uuid import UUID

from starlette.responses import Response

from redrive.message import MessageId, ParkReason, token
from redrive.operate import operations
from redrive.operate.actions import messages as actions
from redrive.operate.actions.messages import Request, place_of
from redrive.operate.actions.model import Action, Noun
from redrive.operate.actions.results import ActResult
from redrive.operate.actions.table import MESSAGE_ACTIONS
from redrive.operate.actions.table import find as find_action
from redrive.operate.console import display
from redrive.operate.console.calls import Call, redirect
from redrive.operate.console.jobs import Job
from redrive.operate.console.rendering import page
from redrive.operate.web.dependencies import note_payload_read, require_visible
from redrive.operate.web.principal import Permission
from redrive.store.reads.messages import STATES
from redrive.store.reads.models import MessageFilter
from redrive.who import Who

PAGE: Final = 50
FILTERS: Final = ("destination", "tenant", "kind", "key")


async def list_(call: Call) -> Response:
    wanted = {name: call.given(name) for name in FILTERS}
    found = await operations.list_messages(
        call.store,
        MessageFilter(**wanted, state=call.given("state"), before=call.position("before", MessageId), limit=PAGE),
    )
    return page(
        call, "messages.html", title="Messages", found=found, wanted=wanted, state=call.given("state"), states=STATES
    )


async def show(call: Call) -> Response:
    return await _page(call, reveal=False)


async def reveal(call: Call) -> Response:
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
        acts=[action for action in MESSAGE_ACTIONS if place_of(details.view) in action.applies_to],
        token=details.token or token(details.view.id, details.view.version, details.view.stage),
        origin=f"{call.request.url.scheme}://{call.request.url.netloc}{call.prefix}",
    )


async def ask(call: Call) -> Response:
    action = _action(call)
    who = Who(actor=call.principal.name, reason="preview")
    request = Request(action=action, who=who, options={"out_of_order": True})
    (judged,) = await actions.preview(call.store, request, [call.message_id()])
    view = (await operations.show_message(call.store, call.message_id())).view
    return page(call, "act.html", title=action.title, action=action, judged=judged, view=view)


async def perform(call: Call) -> Response:
    action, id_ = _action(call), call.message_id()
    request = Request(action=action, who=call.who(), options=call.options(action))
    if action.single:
        return await _copy(call, request, id_)

    async def act() -> ActResult:
        return (await actions.perform(call.store, request, [id_]))[0]

    return await call.carry_out_on_one(f"{action.name.capitalize()}: done for", act, back=f"/messages/{id_}")


async def _copy(call: Call, request: Request, id_: MessageId) -> Response:
    await require_visible(call.store, id_)

    async def doing(job: Job) -> None:
        made = await request.action.call(call.store, id_, request.who, **request.options)
        job.goes_to = call.url(f"/messages/{made}")

    return await call.carry_out(request.action.title, doing, back=f"/messages/{id_}")


async def find(call: Call) -> Response:
    """The search field: an id, the beginning of a group's id, or an idempotency key."""
    wanted = call.given("q", limit=500) or ""
    try:
        return redirect(call.url(f"/messages/{UUID(wanted)}"))
    except ValueError:
        pass
    if call.principal.all_tenants and 8 <= len(wanted) <= 64 and set(wanted.lower()) <= set("0123456789abcdef"):
        return redirect(call.url(f"/groups/{wanted.lower()}"))
    return redirect(call.url("/messages", key=wanted))


def _action(call: Call) -> Action:
    return find_action(Noun.MESSAGE, call.path("act"))


REASONS: Final = {
    ParkReason.DEAD: ("Dead letters", "could not be delivered"),
    ParkReason.HELD: ("Held", "may have happened; no answer came"),
    ParkReason.UNRECORDED: ("Unrecorded", "were answered, and recording the answer failed"),
}
