"""Ordering keys that do not go on, what holds them up, and how one goes on without its head."""

from typing import Final

from starlette.responses import Response

from redrive.errors import InvalidValue
from redrive.operate import operations
from redrive.operate.actions.table import SKIP
from redrive.operate.console.calls import Call
from redrive.operate.console.jobs import Job
from redrive.operate.console.rendering import page
from redrive.store.reads.models import WAITING_MAX, KeyFilter, KeyPosition

PAGE: Final = 50


async def list_(call: Call) -> Response:
    wanted = KeyFilter(
        tenant=call.given("tenant"),
        destination=call.given("destination"),
        blocked=call.given("view") != "all",
        after=call.position("after", KeyPosition),
        limit=PAGE,
    )
    found = await operations.list_keys(call.store, wanted)
    return page(call, "keys.html", title="Blocked keys", found=found, wanted=wanted, most=WAITING_MAX)


async def ask(call: Call) -> Response:
    tenant, order_by = call.given("tenant") or "default", call.given("key", limit=1000) or ""
    head = await operations.find_head(call.store, tenant, order_by)
    return page(call, "skip.html", title=SKIP.title, head=head)


async def skip(call: Call) -> Response:
    call.require(SKIP.permission)
    tenant, order_by = call.field("tenant") or "default", call.field("order_by", limit=1000) or ""
    sequence, who = call.field("sequence") or "", call.who()
    if not (sequence.isascii() and sequence.isdigit()):
        raise InvalidValue("The form is not whole; load the page again.")

    async def doing(_: Job) -> str:
        head = await operations.find_head(call.store, tenant, order_by, sequence=int(sequence))
        await SKIP.call(call.store, head, who)
        return f"Number {head.sequence} is skipped; {head.waiting:,} behind it go on."

    return await call.carry_out("Skip", doing, back="/keys")
