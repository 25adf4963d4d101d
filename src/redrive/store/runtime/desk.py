"""The desk's verbs in PostgreSQL: what people do with failure groups, dead letters and replays.

`sql/verbs/` (groups, workflow, replay) says what each promises and locks. Called by `redrive.operate.desk`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, LiteralString, NamedTuple
from uuid import UUID

from redrive.errors import NotFound
from redrive.message import MessageId
from redrive.ports import Now
from redrive.store.runtime import wire
from redrive.store.runtime.postgres import PostgresStore
from redrive.who import require_actor_and_reason

REPLAY_ITEMS_MAX: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NewReplay:
    """Which dead letters are sent again, and how.

    filter: at least one of ids, group, destination, error_class, kind, tenant. request_key: the same one twice is one
    replay; None = every call is one. stage: where each starts; None = where it failed. override: also what was not
    validated. canary: how many are sent first; the rest only if all of these arrive; 0 = none.
    failure_ratio_max: it stops when a larger part than this fails, of ten or more.
    """

    name: str
    filter: Mapping[str, Any]
    actor: str
    reason: str
    request_key: str | None = None
    stage: str | None = None
    out_of_order: bool = False
    override: bool = False
    rate_per_second: float = 50.0
    canary: int = 0
    failure_ratio_max: float = 0.1


class Created(NamedTuple):
    """result: created, exists, conflict, empty, too_many or one_stage."""

    id: UUID | None
    result: str


class Plan(NamedTuple):
    """verdicts: how many messages would go (`would`), and how many would be skipped, by the reason.

    money: a second person has to approve it. late_successes: how many that would go were delivered by a late answer.
    """

    verdicts: Mapping[str, int]
    money: bool
    late_successes: int = 0


async def mark_group(
    store: PostgresStore,
    fingerprint: bytes,
    act: str,
    *,
    actor: str,
    reason: str,
    value: str | None = None,
    until: datetime | None = None,
    now: Now = None,
) -> None:
    """resolve, reopen, snooze (until), ignore, assign (value: the owner) or note (value)."""
    require_actor_and_reason(actor, reason)
    if await store.value("mark_group_1", fingerprint, act, actor, reason, value, until, now) == "not_found":
        raise NotFound(f"There is no failure group {fingerprint.hex()}.", next="redrive groups list --all")


class StepResult(NamedTuple):
    """What became of a step with one message. result: `done` (or `asked`), or why nothing was done."""

    id: MessageId
    result: str


async def triage(
    store: PostgresStore,
    ids: Sequence[MessageId],
    cause: str,
    *,
    actor: str,
    reason: str,
    owner: str | None = None,
    now: Now = None,
) -> list[StepResult]:
    return await _step(store, "triage_1", ids, cause, actor, reason, owner, now)


async def remediate(
    store: PostgresStore,
    ids: Sequence[MessageId],
    *,
    actor: str,
    reason: str,
    evidence: str | None = None,
    ticket: str | None = None,
    now: Now = None,
) -> list[StepResult]:
    return await _step(store, "remediate_1", ids, actor, reason, evidence, ticket, now)


async def ignore(
    store: PostgresStore, ids: Sequence[MessageId], *, actor: str, reason: str, now: Now = None
) -> list[StepResult]:
    return await _step(store, "ignore_1", ids, actor, reason, now)


async def validate(
    store: PostgresStore, ids: Sequence[MessageId], *, actor: str, reason: str, now: Now = None
) -> list[StepResult]:
    """Ask relays about these; what they say is in `requests_of`."""
    return await _step(store, "validate_1", ids, actor, reason, now)


async def verify(
    store: PostgresStore, ids: Sequence[MessageId], *, actor: str, reason: str, now: Now = None
) -> list[StepResult]:
    return await _step(store, "verify_1", ids, actor, reason, now)


async def edit(
    store: PostgresStore,
    id: MessageId,
    *,
    row_version: int,
    body: bytes,
    content_type: str,
    paths: Sequence[str],
    actor: str,
    reason: str,
    now: Now = None,
) -> str:
    """`done`, `changed` where another person was faster, or why the payload cannot be changed.

    Where it moves money: `second_person`, and the payload is kept until another person asks for the same.
    """
    require_actor_and_reason(actor, reason)
    values = (id, row_version, body, content_type, json.dumps(list(paths)), actor, reason, now)
    return str(await store.value("edit_1", *values))


async def copy(
    store: PostgresStore, id: MessageId, key: str, *, actor: str, reason: str, now: Now = None
) -> tuple[str, MessageId | None]:
    """`new` or `duplicate` with the id of the copy; else why there is none."""
    require_actor_and_reason(actor, reason)
    (row,) = await store.call("copy_1", id, key, actor, reason, now)
    return row.result, row.id


async def create_replay(store: PostgresStore, wanted: NewReplay, *, now: Now = None) -> Created:
    """The replay of this request, new or not."""
    require_actor_and_reason(wanted.actor, wanted.reason)
    values = (
        wanted.name,
        wanted.request_key,
        json.dumps(wanted.filter),
        wanted.stage,
        wanted.out_of_order,
        wanted.override,
        wanted.rate_per_second,
        wanted.canary,
        wanted.failure_ratio_max,
        REPLAY_ITEMS_MAX,
        wanted.actor,
        wanted.reason,
        now,
    )
    return wire.objects(Created, await store.call("create_replay_1", *values))[0]


async def plan_replay(store: PostgresStore, wanted: NewReplay, *, now: Now = None) -> Plan:
    """What `create_replay` would find now. Nothing is changed."""
    values = [json.dumps(wanted.filter), wanted.out_of_order, wanted.override, REPLAY_ITEMS_MAX + 1, now]
    rows = await store.rows(
        "SELECT p.verdict, count(*) AS messages, bool_or(p.money) AS money, count(l.late) AS late"
        " FROM redrive.plan_replay_1(%s::json, %s, %s, %s, %s) p"
        " LEFT JOIN LATERAL (SELECT true AS late FROM redrive.late_answer x"
        " WHERE x.message_id = p.message_id AND x.answer = 'delivered' LIMIT 1) l ON true GROUP BY p.verdict",
        values,
    )
    would = [row for row in rows if row.verdict == "would"]
    verdicts = {row.verdict: row.messages for row in rows}
    return Plan(verdicts, any(row.money for row in would), sum(row.late for row in would))


async def steer_replay(store: PostgresStore, id: UUID, act: str, *, actor: str, reason: str, now: Now = None) -> str:
    """approve, pause, resume or cancel: `done`, `not_found`, `same_person`, `approver`, or the status it has."""
    require_actor_and_reason(actor, reason)
    return str(await store.value("steer_replay_1", id, act, actor, reason, now))


async def _step(
    store: PostgresStore, function: LiteralString, ids: Sequence[MessageId], *values: Any
) -> list[StepResult]:
    return wire.objects(StepResult, await store.call(function, wire.array(ids), *values))
