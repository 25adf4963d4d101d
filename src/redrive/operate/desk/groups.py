"""Failure groups: all failures of one cause as one item. SQL: verbs/groups.sql, reads/groups.sql.

A group is found by any unique prefix of its id. Marks (resolve, snooze, …) are audited and change no message.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal, get_args

from redrive.errors import InvalidValue, NotFound
from redrive.message import ParkReason
from redrive.operate.desk.causes import likely_cause
from redrive.store.reads.desk import list_groups
from redrive.store.reads.messages import list_parked
from redrive.store.reads.models import GroupFilter, GroupStatus, GroupView, ParkedFilter, ParkedRecord
from redrive.store.runtime.desk import mark_group
from redrive.store.runtime.postgres import PostgresStore

__all__ = [
    "NEEDS_REPAIR",
    "GroupDetails",
    "Mark",
    "Marking",
    "find_group",
    "group_details",
    "list_groups",
    "mark",
]

Mark = Literal["resolve", "reopen", "snooze", "ignore", "assign", "note"]

NEEDS_REPAIR: Final = (GroupStatus.OPEN, GroupStatus.REGRESSED)
SAMPLES: Final = 5  # messages that are shown of a group
PREFIX_MIN: Final = 4  # characters
SNOOZE_MAX: Final = timedelta(days=90)
VALUE_MAX: Final = 500  # characters of an owner or a note


@dataclass(frozen=True, slots=True, kw_only=True)
class Marking:
    """value: the owner or the note. snooze: for how long."""

    mark: Mark
    actor: str
    reason: str
    value: str | None = None
    snooze: timedelta | None = None

    def __post_init__(self) -> None:
        if self.mark not in get_args(Mark):
            raise InvalidValue(f"mark is {self.mark!r}; it must be one of {', '.join(get_args(Mark))}.")
        if self.mark == "snooze" and not (self.snooze and timedelta(0) < self.snooze <= SNOOZE_MAX):
            raise InvalidValue(f"A snooze lasts {self.snooze}; it must be above 0 and at most {SNOOZE_MAX.days} days.")
        if self.value is not None and not 0 < len(self.value) <= VALUE_MAX:
            raise InvalidValue(f"It has {len(self.value)} characters; it must have 1 to {VALUE_MAX}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDetails:
    """messages: its latest dead letters."""

    group: GroupView
    likely_cause: str
    first: str
    runbook: str
    messages: Sequence[ParkedRecord]


async def group_details(store: PostgresStore, prefix: str) -> GroupDetails:
    group = await find_group(store, prefix)
    advice = likely_cause(group.error_class)
    wanted = ParkedFilter(reason=ParkReason.DEAD, failure_group=group.fingerprint, limit=SAMPLES)
    page = await list_parked(store, wanted)
    return GroupDetails(
        group=group, likely_cause=advice.cause.value, first=advice.first, runbook=advice.runbook, messages=page.rows
    )


async def find_group(store: PostgresStore, prefix: str, *, now: datetime | None = None) -> GroupView:
    wanted = prefix.strip().lower()
    if len(wanted) < PREFIX_MIN or not set(wanted) <= set("0123456789abcdef"):
        raise InvalidValue(f"{prefix!r} is no group; it is at least {PREFIX_MIN} hexadecimal digits of its id.")
    found = (await list_groups(store, GroupFilter(prefix=wanted, limit=2), now=now)).rows
    if not found:
        raise NotFound(f"There is no failure group {wanted}.", next="redrive groups list --all")
    if len(found) > 1:
        raise InvalidValue(f"Several failure groups begin with {wanted}; give more of the id.")
    return found[0]


async def mark(store: PostgresStore, prefix: str, marking: Marking, *, now: datetime | None = None) -> GroupView:
    group = await find_group(store, prefix, now=now)
    moment = now or await store.now()
    await mark_group(
        store,
        group.fingerprint,
        marking.mark,
        actor=marking.actor,
        reason=marking.reason,
        value=marking.value,
        until=moment + marking.snooze if marking.snooze else None,
        now=now,
    )
    return await find_group(store, group.id, now=now)
