"""Replays: many dead letters sent again at a rate, a few first. SQL: verbs/replay.sql.

A replay is a snapshot in the database that relays carry out. There is no replay of everything.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from redrive.errors import ActRefused, ApproverNeeded, InvalidValue, NotFound
from redrive.store.reads.desk import list_items, list_replays
from redrive.store.reads.models import ReplayView
from redrive.store.runtime.desk import REPLAY_ITEMS_MAX, NewReplay, Plan, create_replay, plan_replay, steer_replay
from redrive.store.runtime.postgres import PostgresStore

__all__ = ["NewReplay", "Plan", "create", "find", "list_items", "list_replays", "plan", "preview", "steer"]

FILTERS: Final = frozenset({"ids", "group", "destination", "error_class", "kind", "tenant"})
RATE_MAX: Final = 10_000.0
CANARY_MAX: Final = 1000
NAME_MAX: Final = 100
KEY_MAX: Final = 200
# The statuses that an act fits; verbs/replay.sql (steer_replay) decides.
FITS: Final[Mapping[str, frozenset[str]]] = {
    "approve": frozenset({"waiting"}),
    "pause": frozenset({"running"}),
    "resume": frozenset({"paused", "stopped"}),
    "cancel": frozenset({"waiting", "running", "paused", "stopped"}),
}
SKIPPED: Final[Mapping[str, str]] = {
    "evidence": "something says that it was delivered: confirm it",
    "one_stage": "it moves money, and a payment has one stage",
    "not_validated": "not validated yet",
    "ignored": "ignored",
    "expired": "expired: it would not be sent",
    "in_another_replay": "in another replay that is not finished",
    "moved_on": "later messages of its ordering key went out without it",
    "changed": "changed since the replay was made",
    "cancelled": "the replay was cancelled",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanShown:
    """skipped: how many, by the reason. late_successes: of how many that would go a late answer says that they were
    delivered.
    """

    would: int
    skipped: Mapping[str, int]
    second_person: bool
    late_successes: int


def shown_plan(plan: Plan) -> PlanShown:
    skipped = {verdict: number for verdict, number in plan.verdicts.items() if verdict != "would"}
    would = plan.verdicts.get("would", 0)
    return PlanShown(would=would, skipped=skipped, second_person=plan.money, late_successes=plan.late_successes)


async def plan(store: PostgresStore, wanted: NewReplay) -> Plan:
    _check(wanted)
    return await plan_replay(store, wanted)


async def create(store: PostgresStore, wanted: NewReplay, *, now: datetime | None = None) -> ReplayView:
    """The new replay, or the one that the same request key has made before."""
    _check(wanted)
    created = await create_replay(store, wanted, now=now)
    match created.result:
        case "empty":
            raise ActRefused("Nothing that matches can be sent again.", next="the same with --dry-run says why")
        case "too_many":
            raise ActRefused(f"More than {REPLAY_ITEMS_MAX:,} messages match.", next="a narrower filter")
        case "one_stage":
            raise ActRefused(
                "Some of it moves money, and a payment has one stage; another one has another token.",
                next="the same without --stage",
            )
        case "conflict":
            raise ActRefused(
                f"Request key {wanted.request_key!r} has made a replay with another filter.",
                next=f"redrive replay status {created.id}",
            )
    return await find(store, str(created.id))


async def find(store: PostgresStore, id_or_name: str) -> ReplayView:
    try:
        page = await list_replays(store, id=UUID(id_or_name), limit=1)
    except ValueError:
        page = await list_replays(store, name=id_or_name, limit=1)
    if not page.rows:
        raise NotFound(f"There is no replay {id_or_name!r}.", next="redrive replay list")
    return page.rows[0]


async def preview(store: PostgresStore, id_or_name: str, act: str) -> ReplayView:
    replay = await find(store, id_or_name)
    if replay.status not in FITS[act]:
        raise _does_not_fit(replay, replay.status, act)
    return replay


async def steer(
    store: PostgresStore, id_or_name: str, act: str, *, actor: str, reason: str, now: datetime | None = None
) -> ReplayView:
    replay = await find(store, id_or_name)
    answer = await steer_replay(store, replay.id, act, actor=actor, reason=reason, now=now)
    if answer == "same_person":
        raise ActRefused(
            f"Replay {replay.name!r} moves money, and {actor} made it: a second person has to approve it.",
            next=f"redrive replay approve {replay.id} by another --actor",
        )
    if answer == "approver":
        raise ApproverNeeded(f"Replay {replay.name!r} moves money: to approve it takes the role approver.")
    if answer != "done":
        raise _does_not_fit(replay, answer, act)
    return await find(store, str(replay.id))


def _does_not_fit(replay: ReplayView, status: str, act: str) -> ActRefused:
    return ActRefused(f"Replay {replay.name!r} is {status}; {act} does not apply.", next="redrive replay list")


def _check(wanted: NewReplay) -> None:
    unknown = set(wanted.filter) - FILTERS
    if unknown or not any(wanted.filter.values()):
        raise InvalidValue("A replay needs a filter: " + ", ".join(sorted(FILTERS)) + ", at least one of them.")
    if not 1 <= len(wanted.name) <= NAME_MAX or not wanted.name.isprintable():
        raise InvalidValue(f"The name of a replay has 1 to {NAME_MAX} printable characters; it has {len(wanted.name)}.")
    if wanted.request_key is not None and not 1 <= len(wanted.request_key) <= KEY_MAX:
        raise InvalidValue(f"request_key has {len(wanted.request_key)} characters; it must have 1 to {KEY_MAX}.")
    if not 0 < wanted.rate_per_second <= RATE_MAX:
        raise InvalidValue(f"The rate is {wanted.rate_per_second}; it must be above 0 and at most {RATE_MAX:.0f}.")
    if not 0 <= wanted.canary <= CANARY_MAX:
        raise InvalidValue(f"canary is {wanted.canary}; it must be 0 to {CANARY_MAX}.")
    if not 0 <= wanted.failure_ratio_max <= 1:
        raise InvalidValue(f"failure_ratio_max is {wanted.failure_ratio_max}; it must be 0 to 1.")
