"""Destinations: whether anything goes there, why not, and what can be done about it."""

from typing import Final

from starlette.responses import Response

from redrive.errors import NotFound
from redrive.operate import operations
from redrive.operate.actions.model import Noun
from redrive.operate.actions.table import DESTINATION_ACTIONS, find
from redrive.operate.console.calls import Call
from redrive.operate.console.charts import NARROW, retry_curve, traffic_chart
from redrive.operate.console.jobs import Job
from redrive.operate.console.pages.overview import flow
from redrive.operate.console.rendering import page
from redrive.operate.destination_test import Tested
from redrive.store.reads.dashboard import retry_delays, traffic

KEYS_MAX: Final = 20
TESTED: Final = {
    True: "It answered; the others follow, slowly at first.",
    False: "It did not answer; it is left alone for longer.",
    None: "No relay has taken a message yet.",
}


async def list_(call: Call) -> Response:
    status = await operations.status(call.store)
    known = {one.name: one for one in await operations.list_destinations(call.store)}
    return page(call, "destinations.html", title="Destinations", status_=status, known=known, flow=flow)


async def show(call: Call) -> Response:
    name = call.path("name")
    status = await operations.status(call.store)
    backlog = next((one for one in status.backlog if one.destination == name), None)
    if backlog is None:
        raise NotFound(f"There is no destination {name[:100]!r}.")
    known = next((one for one in await operations.list_destinations(call.store) if one.name == name), None)
    delays = await retry_delays(call.store, name)
    keys = await call.store.limit_keys([name], limit=KEYS_MAX)
    held_back = backlog.paused or any(key.paused for key in keys)
    fits = {"pause": not backlog.paused, "resume": held_back, "test": backlog.breaker in ("open", "half_open")}
    return page(
        call,
        "destination.html",
        title=name,
        name=name,
        backlog=backlog,
        known=known,
        limit_keys=keys,
        state=flow(backlog),
        now=status.at,
        relays=[relay for relay in status.relays if relay.live and name in relay.destinations],
        chart=traffic_chart(await traffic(call.store, destination=name), width=NARROW),
        curve=retry_curve(delays),
        delays=delays,
        fitting=[one for one in DESTINATION_ACTIONS if fits[one.name]],
    )


async def act(call: Call) -> Response:
    action, name = find(Noun.DESTINATION, call.path("act")), call.path("name")
    who, given = call.who(), call.options(action)
    await operations.require_known(call.store, name)

    async def doing(_: Job) -> str:
        answer = await action.call(call.store, name, who, **given)
        if isinstance(answer, Tested):
            return TESTED[answer.answered]
        return f"{name} is {action.name}d." if answer else f"{name} {action.said}."

    return await call.carry_out(action.title, doing, back=f"/destinations/{name}")
