"""What waits for a person: dead, held and unrecorded, a worklist each, also as a file for a spreadsheet."""

from typing import Final

from starlette.responses import Response

from redrive.errors import InvalidValue, NotFound
from redrive.message import ParkReason
from redrive.operate import operations
from redrive.operate.console.calls import Call
from redrive.operate.console.pages.messages import REASONS
from redrive.operate.console.rendering import csv_file, page
from redrive.store.reads.models import LIMIT_MAX, ParkedFilter, ParkedPosition

PAGE: Final = 50
FILTERS: Final = ("destination", "tenant", "kind", "error_class")
COLUMNS: Final = (
    "id", "reason", "tenant", "destination", "kind", "key", "error_class", "text", "stage", "attempt", "parked_at",
    "workflow", "cause", "owner", "note",
)  # fmt: skip


async def list_(call: Call) -> Response:
    wanted = _wanted(call, limit=PAGE)
    found = await operations.list_parked(call.store, wanted)
    return page(
        call,
        "parked.html",
        title=REASONS[wanted.reason][0],
        found=found,
        reason=wanted.reason,
        reasons=REASONS,
        wanted={name: call.given(name) for name in FILTERS},
        group=call.given("group"),
    )


async def export(call: Call) -> Response:
    """The same as CSV, at most a thousand rows; no payload, and no cell that a spreadsheet would run."""
    wanted = _wanted(call, limit=LIMIT_MAX)
    found = await operations.list_parked(call.store, wanted)
    rows = ([getattr(record, name) for name in COLUMNS] for record in found.rows)
    return csv_file(wanted.reason, COLUMNS, rows)


def _wanted(call: Call, *, limit: int) -> ParkedFilter:
    try:
        reason = ParkReason(call.path("reason"))
    except ValueError:
        raise NotFound(f"Nothing is parked for {call.path('reason')[:50]!r}.") from None
    return ParkedFilter(
        reason=reason,
        **{name: call.given(name) for name in FILTERS},
        failure_group=_group(call),
        before=call.position("before", ParkedPosition),
        limit=limit,
    )


def _group(call: Call) -> bytes | None:
    text = call.given("group")
    try:
        return bytes.fromhex(text) if text else None
    except ValueError:
        raise InvalidValue(f"{text!r} is no group.") from None
