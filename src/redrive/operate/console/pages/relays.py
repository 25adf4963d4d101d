"""Who works: relays, periodic duties, and the doctor's points on request."""

from __future__ import annotations

from starlette.responses import Response

from redrive.operate import operations
from redrive.operate.console.calls import Call
from redrive.operate.console.rendering import page


async def show(call: Call) -> Response:
    """Relays and duties."""
    status = await operations.status(call.store)
    return page(call, "relays.html", title="Relays", status_=status, points=None)
