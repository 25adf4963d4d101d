"""Ordering keys that do not go on, what holds them up, and how one goes on without its head."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from redrive.errors import InvalidValue
from redrive.operate import cursors, operations
from redrive.operate.actions.table import SKIP
from redrive.operate.console.calls import Call
from redrive.operate.console.jobs import Job
from redrive.operate.console.rendering import page
from redrive.store.reads.models import WAITING_MAX, KeyFilter, KeyPosition

PAGE: Final = 50


async def list_(call: Call) -> Response:
    """Those that wait for a person first."""
    wanted = KeyFilter(
        tenant=call.given("tenant"),
        destination=call.given("destination"),
        blocked=call.given("view") != "all",
        after=cursors.decode(KeyPosition, call.given("after")),
        limit=PAGE,
    )
    found = await operations.list_keys(call.store, wanted)
    following = cursors.encode(found.next)
    return page(
        call, "keys.html", title="Blocked keys", found=found, following=following, wanted=wanted, most=WAITING_MAX
    )


async def ask(call: Call) -> Response:
    """What would be skipped."""
    tenant, order_by = call.given("tenant") or "default", call.given("key", limit=1000) or ""
    head = await operations.find_head(call.store, tenant, order_by)
    return page(call, "skip.html", title=SKIP.title, head=head)


async def skip(call: Call) -> Response:
    """Close the head for good, so that its key goes on."""
    call.require(SKIP.permission)
    tenant, order_by = call.field("tenant") or "default", call.field("order_by", limit=1000) or ""
    sequence, reason = call.field("sequence") or "", call.reason()
    if not (sequence.isascii() and sequence.isdigit()):
        raise InvalidValue("The form is not whole; load the page again.")

    async def doing(job: Job) -> None:
        head = await operations.find_head(call.store, tenant, order_by, sequence=int(sequence))
        await SKIP.call(call.store, head, actor=call.principal.name, reason=reason)
        job.said = f"Number {head.sequence} is skipped; {head.waiting:,} behind it go on."

    return await call.carry_out("Skip", doing, back=call.url("/keys"))
