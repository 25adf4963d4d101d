"""Replays: how far each is, what became of its messages, and the word of a person that they have arrived."""

from typing import Final
from uuid import UUID

from starlette.responses import Response

from redrive.errors import InvalidValue
from redrive.message import MessageId
from redrive.operate.actions.model import Noun
from redrive.operate.actions.table import STEERING, find
from redrive.operate.console.calls import Call
from redrive.operate.console.charts import shares
from redrive.operate.console.jobs import Job
from redrive.operate.console.rendering import page
from redrive.operate.desk import replays
from redrive.store.reads.models import LIMIT_MAX, ReplayView
from redrive.store.runtime.postgres import PostgresStore

PAGE: Final = 20
ITEMS: Final = 25
VERIFY: Final = find(Noun.DEAD, "verify")
OUTCOMES: Final = ("waiting", "requeued", "delivered", "dead", "held", "unrecorded", "skipped")


async def list_(call: Call) -> Response:
    found = await replays.list_replays(call.store, before=call.position("before", UUID), limit=PAGE)
    return page(call, "replays.html", title="Replays", found=found, parts=parts)


async def show(call: Call) -> Response:
    replay = await replays.find(call.store, call.path("replay"))
    outcome = call.given("outcome")
    if outcome not in (None, *OUTCOMES):
        raise InvalidValue(f"outcome is {outcome!r}; it must be one of {', '.join(OUTCOMES)}.")
    after = call.position("after", int) or 0
    items = await replays.list_items(call.store, replay.id, outcome=outcome, after=after, limit=ITEMS)
    return page(
        call,
        "replay.html",
        title=replay.name,
        replay=replay,
        items=items,
        now=items.at,
        outcome=outcome,
        outcomes=OUTCOMES,
        parts=parts(replay),
        left_seconds=left_seconds(replay),
        fitting=[action for action in STEERING if replay.status in action.applies_to],
        skipped=replays.SKIPPED,
        canary_done=min(replay.canary, replay.delivered + replay.failed),
    )


def parts(replay: ReplayView) -> list[tuple[str, float, float]]:
    kinds = ("good", "bad", "work", "skip", "wait")
    counts = (replay.delivered, replay.failed, replay.under_way, replay.skipped, replay.waiting)
    return shares(list(zip(kinds, counts, strict=True)))


def left_seconds(replay: ReplayView) -> float | None:
    return replay.waiting / replay.rate_per_second if replay.status == "running" and replay.waiting else None


async def steer(call: Call) -> Response:
    action = find(Noun.REPLAY, call.path("act"))
    call.require(action.permission)
    who = call.who()

    async def doing(_: Job) -> str:
        replay = await action.call(call.store, call.path("replay"), who)
        return f"The replay is {replay.status}."

    return await call.carry_out(action.title, doing, back=f"/replays/{call.path('replay')}")


async def verify(call: Call) -> Response:
    call.require(VERIFY.permission)
    replay = await replays.find(call.store, call.path("replay"))
    ids = await delivered(call.store, replay.id)
    if not ids:
        raise InvalidValue("Nothing of this replay is left to verify.")
    return await call.carry_out_on_many(VERIFY, ids, back=f"/replays/{replay.id}")


async def delivered(store: PostgresStore, replay: UUID) -> list[MessageId]:
    found: list[MessageId] = []
    after = 0
    while True:
        some = await replays.list_items(store, replay, outcome="delivered", after=after, limit=LIMIT_MAX)
        found += [item.message_id for item in some.rows if item.verified_at is None]
        if some.next is None:
            return found
        after = some.next
