"""Failure groups and their repair: cause, remedy, check, replay, verification.

The step of a group is read from its messages, never stored. A step is done to the messages that the page counted; one
that arrives later waits for the next time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from starlette.responses import Response

from redrive.errors import InvalidValue, NotAllowed
from redrive.message import MessageId, ParkReason
from redrive.operate.actions.model import Action, Noun
from redrive.operate.actions.table import MARKS, REPLAY, find
from redrive.operate.console.calls import Call, Page
from redrive.operate.console.jobs import Job
from redrive.operate.console.rendering import page
from redrive.operate.desk import commonalities, groups, replays, workflow
from redrive.operate.desk.causes import Cause
from redrive.operate.web.principal import Permission
from redrive.store.reads.dashboard import GroupStep, group_replays, group_steps
from redrive.store.reads.models import (
    LIMIT_MAX,
    GroupFilter,
    GroupPosition,
    GroupStatus,
    GroupView,
    ParkedFilter,
    ReplayView,
)
from redrive.store.runtime.postgres import PostgresStore

PAGE: Final = 25
VALIDATED_AT_ONCE: Final = 500
VIEWS: Final[dict[str, Sequence[GroupStatus] | None]] = {
    "open": groups.NEEDS_REPAIR,
    "snoozed": (GroupStatus.SNOOZED,),
    "ignored": (GroupStatus.IGNORED,),
    "resolved": (GroupStatus.RESOLVED,),
    "all": None,
}
CAUSES: Final = (
    (Cause.DATA, "The data", "The payload is wrong, or what it refers to."),
    (Cause.TRANSIENT, "The destination was down", "It was unreachable, overloaded or too slow."),
    (Cause.AUTH_CONFIG, "Access or address", "A credential, a permission, a certificate, a URL."),
    (Cause.CODE_DEFECT, "A defect in the code", "The handler or the destination has a bug."),
)
WORDS: Final = ("Cause", "Remedy", "Check", "Replay", "Verify")


@dataclass(frozen=True, slots=True)
class Repair:
    """Where the repair of a group stands. at: the step that comes next, 1 to 5; 6 = there is nothing left to do.

    others: messages of the group that are parked and not dead.
    """

    at: int
    steps: dict[str, GroupStep]
    replay: ReplayView | None
    others: int = 0

    def count(self, *workflows: str) -> int:
        return sum(self.steps[name].messages for name in workflows if name in self.steps)

    @property
    def left(self) -> int:
        return self.count("open", "triaged", "remediated", "validated")

    @property
    def cause(self) -> str | None:
        return next((step.cause for step in self.steps.values() if step.cause), None)

    @property
    def in_doubt(self) -> int:
        return sum(step.in_doubt for step in self.steps.values())


async def list_(call: Call) -> Response:
    view = call.given("view") or "open"
    if view not in VIEWS:
        raise InvalidValue(f"view is {view!r}; it must be one of {', '.join(VIEWS)}.")
    wanted = GroupFilter(
        statuses=VIEWS[view],
        destination=call.given("destination"),
        before=call.position("before", GroupPosition),
        limit=PAGE,
    )
    found = await groups.list_groups(call.store, wanted)
    return page(call, "groups.html", title="Failure groups", found=found, view=view, views=VIEWS)


async def show(call: Call) -> Response:
    details = await groups.group_details(call.store, call.path("group"))
    group = details.group
    repair = await repair_of(call.store, group)
    plan = await replays.plan(call.store, new_replay(call, group)) if repair.at == 4 and repair.left else None
    return page(
        call,
        "group.html",
        title=group.error_class,
        group=group,
        details=details,
        repair=repair,
        words=WORDS,
        causes=CAUSES,
        evidence=workflow.EVIDENCE,
        marks=[one for one in MARKS if one.name != "reopen" or group.status not in groups.NEEDS_REPAIR],
        now=await call.store.now(),
        plan=plan,
        skipped=replays.SKIPPED,
        compared=await _compared(call, group) if repair.at <= 2 else None,
        canary=min(5, max(1, repair.count("validated") // 10)),
    )


async def _compared(call: Call, group: GroupView) -> commonalities.Compared | None:
    """None without the permission to read payloads."""
    if not call.principal.may(Permission.PAYLOAD):
        return None
    try:
        return await commonalities.compare(call.store, group)
    except NotAllowed:
        return None


async def repair_of(store: PostgresStore, group: GroupView) -> Repair:
    steps = await group_steps(store, group.fingerprint)
    ids = await group_replays(store, group.id, limit=1)
    replay = await replays.find(store, str(ids[0])) if ids else None
    counts = Repair(0, steps, replay, max(0, group.waiting - sum(step.messages for step in steps.values())))
    return replace(counts, at=_next_step(counts, replay))


def _next_step(repair: Repair, replay: ReplayView | None) -> int:
    if replay and replay.finished_at is None:
        return 4
    for at, name in enumerate(("open", "triaged", "remediated", "validated"), 1):
        if repair.count(name):
            return at
    return 5 if replay and replay.delivered > replay.verified else 6


def step(action: Action, *, steps: Sequence[str] = ()) -> Page:
    """The handler of a step of the repair: done to the messages of the group that are at the steps it takes.

    steps: other ones than the table has; to take messages back.
    """

    async def handler(call: Call) -> Response:
        given = call.options(action)
        group = await groups.find_group(call.store, call.path("group"))
        ids = await at_steps(call.store, group, steps or action.steps, until=as_of(call))
        if not ids:
            raise InvalidValue("No message of the group is at this step any more; load the page again.")
        size = VALIDATED_AT_ONCE if action.name == "validate" else LIMIT_MAX
        return await call.carry_out_on_many(action, ids, back=f"/groups/{group.id}", size=size, **given)

    return handler


async def replay(call: Call) -> Response:
    call.require(Permission.ACT)
    group = await groups.find_group(call.store, call.path("group"))
    wanted = replace(
        new_replay(call, group),
        name=call.field("name", limit=replays.NAME_MAX) or group.error_class,
        reason=call.reason(),
        request_key=call.field("form_token", limit=replays.KEY_MAX),
        **{**call.options(REPLAY), "failure_ratio_max": _percent(call.field("stop_at", limit=20)) / 100},
    )

    async def doing(job: Job) -> None:
        made = await REPLAY.call(call.store, wanted)
        job.goes_to = call.url(f"/replays/{made.id}")

    return await call.carry_out("Replay", doing, back=f"/groups/{group.id}")


def new_replay(call: Call, group: GroupView) -> replays.NewReplay:
    return replays.NewReplay(
        name=group.error_class, filter={"group": group.id}, actor=call.principal.name, reason="dry run"
    )


async def mark(call: Call) -> Response:
    action = find(Noun.GROUP, call.path("mark"))
    who, given = call.who(), call.options(action)

    async def doing(_: Job) -> str:
        group = await action.call(call.store, call.path("group"), who, **given)
        return f"The group is {group.status}." if action.name not in ("assign", "note") else "Noted."

    return await call.carry_out(action.title, doing, back=f"/groups/{call.path('group')}")


def as_of(call: Call) -> datetime | None:
    text = call.field("as_of")
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        raise InvalidValue("The form is not whole; load the page again.") from None


async def at_steps(
    store: PostgresStore, group: GroupView, steps: Sequence[str], *, until: datetime | None
) -> list[MessageId]:
    """The dead letters of a group that are at one of these steps and were there by then."""
    wanted = ParkedFilter(reason=ParkReason.DEAD, failure_group=group.fingerprint)
    found: list[MessageId] = []
    async for one in workflow.all_parked(store, wanted):
        if one.workflow in steps and (until is None or one.parked_at <= until):
            found.append(one.id)
        if len(found) == workflow.SELECTED_MAX:
            break
    return found


def _percent(text: str | None) -> float:
    try:
        return 10.0 if text is None else float(text)
    except ValueError:
        raise InvalidValue(f"Stop above is {text!r}; it must be a number.") from None
