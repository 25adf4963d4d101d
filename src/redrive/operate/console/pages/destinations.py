"""Destinations: whether anything goes there, why not, and what can be done about it."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from redrive.errors import InvalidValue, NotFound
from redrive.operate import destination_test, operations
from redrive.operate.console.calls import Call
from redrive.operate.console.charts import NARROW, retry_curve, traffic_chart
from redrive.operate.console.jobs import Job
from redrive.operate.console.pages.overview import flow
from redrive.operate.console.rendering import page
from redrive.operate.web import Permission
from redrive.store.reads.dashboard import retry_delays, traffic

PROBE_SECONDS: Final = 30.0
KEYS_MAX: Final = 20
PROBED: Final = {
    True: "It answered; the others follow, slowly at first.",
    False: "It did not answer; it is left alone for longer.",
    None: "No relay has taken a message yet.",
}


async def list_(call: Call) -> Response:
    """All of them."""
    status = await operations.status(call.store)
    known = {one.name: one for one in await operations.list_destinations(call.store)}
    return page(call, "destinations.html", title="Destinations", status_=status, known=known, flow=flow)


async def show(call: Call) -> Response:
    """One: how it is, what waits there, and how it was tried again lately."""
    name = call.path("name")
    status = await operations.status(call.store)
    backlog = next((one for one in status.backlog if one.destination == name), None)
    if backlog is None:
        raise NotFound(f"There is no destination {name[:100]!r}.")
    known = next((one for one in await operations.list_destinations(call.store) if one.name == name), None)
    delays = await retry_delays(call.store, name)
    return page(
        call,
        "destination.html",
        title=name,
        name=name,
        backlog=backlog,
        known=known,
        limit_keys=await call.store.limit_keys([name], limit=KEYS_MAX),
        state=flow(backlog),
        now=status.at,
        relays=[relay for relay in status.relays if relay.live and name in relay.destinations],
        chart=traffic_chart(await traffic(call.store, destination=name), width=NARROW),
        curve=retry_curve(delays),
        delays=delays,
    )


async def act(call: Call) -> Response:
    """Pause, resume, or let one message through."""
    call.require(Permission.ACT)
    name, what, reason = call.path("name"), call.path("act"), call.reason()
    actor = call.principal.name
    await operations.require_known(call.store, name)

    async def doing(job: Job) -> None:
        match what:
            case "pause":
                changed = await call.store.pause(name, actor=actor, reason=reason)
                job.said = f"{name} is paused." if changed else f"{name} was paused already."
            case "resume":
                changed = await call.store.resume(name, actor=actor, reason=reason)
                job.said = f"{name} is resumed." if changed else f"{name} was not paused."
            case _:
                probed = await destination_test.probe(
                    call.store, name, actor=actor, reason=reason, seconds=PROBE_SECONDS
                )
                job.said = PROBED[probed.answered]

    if what not in ("pause", "resume", "test"):
        raise InvalidValue(f"There is no act {what[:50]!r}.")
    return await call.carry_out(what.capitalize(), doing, back=call.url(f"/destinations/{name}"))
