"""Who works: relays, workers, periodic duties, and the doctor's points on request."""

from starlette.responses import Response

from redrive.operate import doctor, operations
from redrive.operate.console.calls import Call
from redrive.operate.console.rendering import page
from redrive.operate.installed import installed_sets
from redrive.operate.web.dependencies import authenticator


async def show(call: Call) -> Response:
    """Relays, workers and duties; with `?doctor=1` also what the doctor finds, as the console's own login."""
    status = await operations.status(call.store)
    points = None
    if call.given("doctor"):
        points = await doctor.examine(authenticator(call.request).dsn, sets=installed_sets())
    return page(call, "relays.html", title="Relays", status_=status, points=points)
