"""Every address of the console, in one table: the path, the permission that it needs, and the page.

Reading is GET; an act is POST and ends in a redirect to the page that shows what became of it. Errors become pages.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from redrive.errors import RedriveError
from redrive.operate.actions.model import Noun
from redrive.operate.actions.table import STEPS, find
from redrive.operate.console import live
from redrive.operate.console.calls import Call, Page
from redrive.operate.console.jobs import Jobs
from redrive.operate.console.live import Pulse
from redrive.operate.console.pages import (
    audit,
    destinations,
    editing,
    groups,
    keys,
    messages,
    overview,
    parked,
    relays,
    replays,
    systems,
)
from redrive.operate.console.rendering import page as render
from redrive.operate.web.dependencies import current_principal, require, scoped_store
from redrive.operate.web.principal import Permission
from redrive.operate.web.problems import status_of
from redrive.ports import TransientFailure


class Shared:
    def __init__(self) -> None:
        self.jobs = Jobs()
        self.pulse = Pulse()


async def _live(call: Call) -> Response:
    return await live.listen(call, shared_by(call.request).pulse)


class Address(NamedTuple):
    """everywhere: needs access to all tenants, because what is there has no tenant."""

    method: str
    path: str
    page: Page
    permission: Permission = Permission.READ
    everywhere: bool = False


_READ, _ACT = Permission.READ, Permission.ACT
TRIAGE: Final = find(Noun.DEAD, "triage")
ADDRESSES: Final = (
    Address("GET", "/", overview.show),
    Address("GET", "/live", _live),
    Address("GET", "/find", messages.find),
    Address("GET", "/groups", groups.list_, _READ, True),
    Address("GET", "/groups/{group}", groups.show, _READ, True),
    Address("GET", "/groups/{group}/edit", editing.show, Permission.PAYLOAD, True),
    Address("POST", "/groups/{group}/edit/check", editing.check, Permission.PAYLOAD, True),
    Address("POST", "/groups/{group}/edit", editing.save, _ACT, True),
    *(
        Address("POST", action.page, groups.step(action), action.permission, True)
        for action in STEPS
        if action.name not in ("edit", "verify")
    ),
    Address("POST", "/groups/{group}/back", groups.step(TRIAGE, steps=("remediated", "validated")), _ACT, True),
    Address("POST", "/groups/{group}/replay", groups.replay, _ACT, True),
    Address("POST", "/groups/{group}/mark/{mark}", groups.mark, _ACT, True),
    Address("GET", "/replays", replays.list_, _READ, True),
    Address("GET", "/replays/{replay}", replays.show, _READ, True),
    Address("POST", "/replays/{replay}/verify", replays.verify, _ACT, True),
    Address("POST", "/replays/{replay}/{act}", replays.steer, _ACT, True),
    Address("GET", "/messages", messages.list_),
    Address("GET", "/messages/{id}", messages.show),
    Address("POST", "/messages/{id}/reveal", messages.reveal, Permission.PAYLOAD),
    Address("GET", "/messages/{id}/edit", editing.start, Permission.PAYLOAD, True),
    Address("GET", "/messages/{id}/proposed", editing.proposed, Permission.PAYLOAD),
    Address("POST", "/messages/{id}/proposed", editing.approve, _ACT),
    Address("GET", "/messages/{id}/{act}", messages.ask, _ACT),
    Address("POST", "/messages/{id}/{act}", messages.perform, _ACT),
    Address("GET", "/parked/{reason}", parked.list_),
    Address("GET", "/parked/{reason}/export", parked.export),
    Address("GET", "/destinations", destinations.list_, _READ, True),
    Address("GET", "/destinations/{name:path}", destinations.show, _READ, True),
    Address("POST", "/destinations/{act}/{name:path}", destinations.act, _ACT, True),
    Address("GET", "/keys", keys.list_),
    Address("GET", "/keys/skip", keys.ask, _ACT),
    Address("POST", "/keys/skip", keys.skip, _ACT),
    Address("GET", "/systems/{system}/{view}", systems.list_),
    Address("GET", "/relays", relays.show, _READ, True),
    Address("GET", "/audit", audit.list_, Permission.AUDIT, True),
    Address("GET", "/audit/export", audit.export, Permission.AUDIT, True),
)


def shared_by(request: Request) -> Shared:
    state = request.app.state
    if not hasattr(state, "console"):
        state.console = Shared()
    found: Shared = state.console
    return found


def router() -> APIRouter:
    made = APIRouter(include_in_schema=False)
    for address in ADDRESSES:
        made.add_api_route(
            address.path,
            _endpoint(address.page),
            methods=[address.method],
            dependencies=[require(address.permission, all_tenants=address.everywhere)],
            response_class=Response,
        )
    return made


def _endpoint(page: Page) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        call = Call(request, current_principal(request), scoped_store(request), shared_by(request).jobs)
        if request.method == "POST":
            call.form = await request.form()
        try:
            return await page(call)
        except (RedriveError, TransientFailure) as error:
            return explain(call, error)

    return endpoint


def explain(call: Call, error: Exception) -> Response:
    status = status_of(error)
    transient = isinstance(error, TransientFailure)
    said = "The database does not answer." if transient else str(getattr(error, "message", error))
    advice = "It is tried again when you load the page." if transient else str(getattr(error, "next", ""))
    return render(call, "error.html", title="That did not work", status=status, said=said, advice=advice, code=status)
