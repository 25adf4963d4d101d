"""What waits for a person: dead, held and unrecorded, a worklist each, also as a file for a spreadsheet."""

from __future__ import annotations

import csv
import io
from datetime import datetime
from typing import Final

from starlette.responses import Response

from redrive.errors import InvalidValue, NotFound
from redrive.message import ParkReason
from redrive.operate import cursors, operations
from redrive.operate.console import display
from redrive.operate.console.calls import Call
from redrive.operate.console.pages.messages import REASONS
from redrive.operate.console.rendering import page
from redrive.operate.time_format import moment
from redrive.store.reads.models import LIMIT_MAX, ParkedFilter, ParkedPosition

PAGE: Final = 50
FILTERS: Final = ("destination", "tenant", "kind", "error_class")
COLUMNS: Final = (
    "id", "reason", "tenant", "destination", "kind", "key", "error_class", "text", "stage", "attempt", "parked_at",
    "workflow", "cause", "owner", "note",
)  # fmt: skip


async def list_(call: Call) -> Response:
    """One reason's worklist, latest parked first."""
    wanted = _wanted(call, limit=PAGE)
    found = await operations.list_parked(call.store, wanted)
    following = cursors.encode(found.next)
    return page(
        call,
        "parked.html",
        title=REASONS[wanted.reason][0],
        found=found,
        reason=wanted.reason,
        reasons=REASONS,
        wanted={name: call.given(name) for name in FILTERS},
        following=following,
        group=call.given("group"),
    )


async def export(call: Call) -> Response:
    """The same as CSV, at most a thousand rows; no payload, and no cell that a spreadsheet would run."""
    wanted = _wanted(call, limit=LIMIT_MAX)
    file = io.StringIO()
    writer = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for record in (await operations.list_parked(call.store, wanted)).rows:
        values = (getattr(record, name) for name in COLUMNS)
        writer.writerow(display.cell(moment(value) if isinstance(value, datetime) else value) for value in values)
    headers = {"Content-Disposition": f'attachment; filename="{wanted.reason}.csv"'}
    return Response(file.getvalue(), media_type="text/csv", headers=headers)


def _wanted(call: Call, *, limit: int) -> ParkedFilter:
    try:
        reason = ParkReason(call.path("reason"))
    except ValueError:
        raise NotFound(f"Nothing is parked for {call.path('reason')[:50]!r}.") from None
    given = {name: call.given(name) for name in FILTERS}
    return ParkedFilter(
        reason=reason,
        **given,
        failure_group=_group(call),
        before=cursors.decode(ParkedPosition, call.given("before")),
        limit=limit,
    )


def _group(call: Call) -> bytes | None:
    text = call.given("group")
    try:
        return bytes.fromhex(text) if text else None
    except ValueError:
        raise InvalidValue(f"{text!r} is no group.") from None
