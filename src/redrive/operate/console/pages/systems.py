"""The lists that installed systems declare (`System.views`), shown by one page."""

from typing import Final

from starlette.responses import Response

from redrive.errors import NotFound
from redrive.operate.console.calls import Call
from redrive.operate.console.rendering import page
from redrive.store.reads.dashboard import list_of_a_system

PAGE: Final = 50


async def list_(call: Call) -> Response:
    system = call.systems.get(call.path("system"))
    view = system.views.get(call.path("view")) if system else None
    if system is None or view is None or (view.all_tenants and not call.principal.all_tenants):
        raise NotFound("There is no such list.")
    search = call.given("search") if view.search else None
    found = await list_of_a_system(
        call.store,
        view.sql.read_bytes(),
        position=view.position,
        before=call.given("before"),
        search=search,
        limit=PAGE,
    )
    return page(
        call, "system_list.html", title=view.title, system=system, view=view, found=found, search=search, shown=shown
    )


def shown(value: object) -> str:
    match value:
        case None:
            return "–"
        case dict():
            return ", ".join(f"{name} {shown(one)}" for name, one in value.items())
        case list() | tuple():
            return ", ".join(map(shown, value))
    return str(value)
