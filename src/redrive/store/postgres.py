"""PostgreSQL behind the `Store` port: a verb is one function call, its rows become dataclasses, nothing else.

What a verb promises, locks and relies on is said in `sql/verbs/<verb>.sql`. Every call is one round trip in a
transaction of its own; only `settle_one` spans several statements, because the user's `record` runs between them.
Connections come from `Sessions`; they speak UTC.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, LiteralString, Self
from uuid import UUID

import psycopg
from psycopg import AsyncConnection

from redrive import answers, redact
from redrive.errors import ActRefused, InvalidValue, NotFound
from redrive.message import Attempt, CancelAnswer, Closed, Completion, Fence, HistoryEntry, MessageId, WorkerId
from redrive.policy import SettlementKind
from redrive.ports import (
    Claimed,
    DestinationState,
    Outcome,
    Reaped,
    Record,
    RecordFailed,
    RelayInfo,
    Room,
    Settled,
    TransientFailure,
    duty_hold_seconds,
)
from redrive.store.sessions import Sessions

REFERENCE_MAX = 500

_TRANSIENT = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.SerializationFailure,
    psycopg.errors.DeadlockDetected,
    TimeoutError,
)


class PostgresStore:
    """One database. Open it with `async with`; it holds at most `connections` connections."""

    def __init__(self, dsn: str, *, connections: int = 8, name: str = "redrive", timeout_seconds: float = 30.0) -> None:
        self._sessions = Sessions(dsn, limit=connections, application_name=name)
        self._timeout_seconds = timeout_seconds

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._sessions.close()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection[Any]]:
        """A connection in autocommit mode. Whatever a retry can mend is raised as `TransientFailure`."""
        try:
            async with asyncio.timeout(self._timeout_seconds), self._sessions.session() as conn:
                yield conn
        except _TRANSIENT as error:
            raise TransientFailure(redact.error_type(error)) from error

    async def rows(self, query: LiteralString, values: Sequence[Any] | Mapping[str, Any]) -> list[Any]:
        async with self.connection() as conn, conn.cursor(binary=True) as cursor:
            await cursor.execute(query, values)
            return await cursor.fetchall()

    async def _value(self, query: LiteralString, values: Sequence[Any]) -> Any:
        return (await self.rows(query, values))[0][0]

    # claim, settle, hand back, renew, reap: the life of a message

    async def claim(
        self, worker: WorkerId, rooms: Sequence[Room], *, lease_seconds: float, now: datetime | None = None
    ) -> Claimed:
        destinations, levels, amounts = _columns(rooms, 3)
        rows = await self.rows(
            "SELECT * FROM redrive.claim_1(%s, %s::text[], %s::smallint[], %s::integer[], %s, %s)",
            [worker, destinations, levels, amounts, lease_seconds, now],
        )
        return _claimed(rows, lease_seconds, alone=False)

    async def claim_suspect(
        self,
        worker: WorkerId,
        destinations: Sequence[str],
        *,
        lease_seconds: float,
        now: datetime | None = None,
    ) -> Claimed:
        rows = await self.rows(
            "SELECT * FROM redrive.claim_suspect_1(%s, %s::text[], %s, %s)",
            [worker, list(destinations), lease_seconds, now],
        )
        return _claimed(rows, lease_seconds, alone=True)

    async def settle(self, worker: WorkerId, outcomes: Sequence[Outcome], *, now: datetime | None = None) -> Settled:
        lost: list[Any] = []
        for batch in _one_per_message(outcomes):
            plain = [o for o in batch if _is_plain_delivery(o)]
            others = [o for o in batch if not _is_plain_delivery(o)]
            if plain:
                lost += await self.rows(_SETTLE_DELIVERED, _delivered_values(worker, plain, now))
            if others:
                lost += await self.rows(_SETTLE, _settle_values(worker, "settle", others, now))
        return _settled(len(outcomes), lost)

    async def settle_one(
        self,
        worker: WorkerId,
        outcome: Outcome,
        record: Record,
        *,
        on_step: Callable[[str], None],
        now: datetime | None = None,
    ) -> Settled:
        async with self.connection() as conn, conn.transaction(), conn.cursor(binary=True) as cursor:
            on_step("fence")
            await cursor.execute("SELECT redrive.fence_1(%s, %s)", list(outcome.attempt.fence))
            held = await cursor.fetchone()
            if held and held[0]:
                on_step("record")
                await _run(record, conn, outcome)
            on_step("settle")
            await cursor.execute(_SETTLE, _settle_values(worker, "settle", [outcome], now))
            lost = await cursor.fetchall()
            on_step("commit")
        return _settled(1, lost)

    async def hand_back(
        self, worker: WorkerId, fences: Sequence[Fence], *, now: datetime | None = None
    ) -> Sequence[Fence]:
        ids, attempts = _columns(dict.fromkeys(fences), 2)
        rows = await self.rows(
            "SELECT * FROM redrive.hand_back_1(%s, %s::uuid[], %s::integer[], %s)",
            [worker, ids, attempts, now],
        )
        return [Fence(*row) for row in rows]

    async def renew(
        self, worker: WorkerId, fences: Sequence[Fence], *, lease_seconds: float, now: datetime | None = None
    ) -> Sequence[Fence]:
        ids, attempts = _columns(fences, 2)
        rows = await self.rows(
            "SELECT * FROM redrive.renew_1(%s, %s::uuid[], %s::integer[], %s, %s)",
            [worker, ids, attempts, lease_seconds, now],
        )
        return [Fence(*row) for row in rows]

    async def is_leased(self, fence: Fence) -> bool:
        return bool(await self._value("SELECT redrive.is_leased_1(%s, %s)", list(fence)))

    async def reap(self, *, limit: int, worker: WorkerId | None = None, now: datetime | None = None) -> Reaped:
        return Reaped(await self._value("SELECT redrive.reap_1(%s, %s, %s)", [limit, worker, now]))

    async def expire(self, *, limit: int, now: datetime | None = None) -> int:
        return int(await self._value("SELECT redrive.expire_1(%s, %s)", [limit, now]))

    # what people do

    async def cancel(
        self,
        id: MessageId,
        *,
        actor: str | None = None,
        reason: str | None = None,
        now: datetime | None = None,
    ) -> CancelAnswer:
        if actor is not None:
            _require_actor_and_reason(actor, reason or "")
        answer = await self._value("SELECT redrive.cancel_1(%s, %s, %s, %s)", [id, actor, reason, now])
        if answer == "not_found":
            raise _no_such_message(id)
        return CancelAnswer(answer)

    async def requeue(
        self, id: MessageId, *, actor: str, reason: str, stage: str | None = None, now: datetime | None = None
    ) -> None:
        await self._act("SELECT redrive.requeue_1(%s, %s, %s, %s, %s)", "requeue", id, [actor, reason, stage, now])

    async def confirm(
        self,
        id: MessageId,
        *,
        actor: str,
        reason: str,
        reference: str | None = None,
        now: datetime | None = None,
    ) -> None:
        await self._act("SELECT redrive.confirm_1(%s, %s, %s, %s, %s)", "confirm", id, [actor, reason, reference, now])

    async def deny(self, id: MessageId, *, actor: str, reason: str, now: datetime | None = None) -> None:
        await self._act("SELECT redrive.deny_1(%s, %s, %s, %s)", "deny", id, [actor, reason, now])

    async def repair(self, id: MessageId, *, actor: str, reason: str, now: datetime | None = None) -> None:
        await self._act("SELECT redrive.repair_1(%s, %s, %s, %s)", "repair", id, [actor, reason, now])

    async def discard(self, id: MessageId, *, actor: str, reason: str, now: datetime | None = None) -> None:
        await self._act("SELECT redrive.discard_1(%s, %s, %s, %s)", "discard", id, [actor, reason, now])

    async def _act(self, query: LiteralString, verb: str, id: MessageId, values: Sequence[Any]) -> None:
        _require_actor_and_reason(values[0], values[1])
        answer = await self._value(query, [id, *values])
        if answer == "not_found":
            raise _no_such_message(id)
        if answer != "done":
            raise ActRefused(f"Message {id} is {answer}; {verb} does not apply.", next=_WHAT_APPLIES.get(answer, ""))

    async def pause(self, destination: str, *, actor: str, reason: str, now: datetime | None = None) -> bool:
        _require_actor_and_reason(actor, reason)
        return bool(await self._value("SELECT redrive.pause_1(%s, %s, %s, %s)", [destination, actor, reason, now]))

    async def resume(self, destination: str, *, actor: str, reason: str, now: datetime | None = None) -> bool:
        _require_actor_and_reason(actor, reason)
        return bool(await self._value("SELECT redrive.resume_1(%s, %s, %s, %s)", [destination, actor, reason, now]))

    # relays and duties

    async def register(self, relay: RelayInfo, *, now: datetime | None = None) -> None:
        await self.rows(
            "SELECT redrive.register_1(%s, %s, %s, %s, %s, %s::text[], %s::boolean[], %s::json, %s, %s)",
            [
                relay.worker,
                relay.name,
                relay.host,
                relay.pid,
                relay.version,
                list(relay.destinations),
                [name in relay.records for name in relay.destinations],
                json.dumps(dict(relay.policies)),
                relay.suspects_only,
                now,
            ],
        )

    async def heartbeat(self, worker: WorkerId, *, now: datetime | None = None) -> Sequence[DestinationState]:
        rows = await self.rows("SELECT * FROM redrive.heartbeat_1(%s, %s)", [worker, now])
        return [
            DestinationState(name=name, paused=paused, pause_reason=reason, paused_by=by, paused_at=at)
            for name, paused, reason, by, at in rows
        ]

    async def deregister(self, worker: WorkerId) -> None:
        await self.rows("SELECT redrive.deregister_1(%s)", [worker])

    async def forget_relays(self, *, after_seconds: float, now: datetime | None = None) -> int:
        return int(await self._value("SELECT redrive.forget_relays_1(%s, %s)", [after_seconds, now]))

    async def begin_duty(
        self, name: str, worker: WorkerId, *, every_seconds: float, now: datetime | None = None
    ) -> bool:
        values = [name, worker, every_seconds, duty_hold_seconds(every_seconds), now]
        return bool(await self._value("SELECT redrive.begin_duty_1(%s, %s, %s, %s, %s)", values))

    async def end_duty(self, name: str, worker: WorkerId, *, result: str, now: datetime | None = None) -> None:
        await self.rows("SELECT redrive.end_duty_1(%s, %s, %s, %s)", [name, worker, result, now])

    async def has_suspect(self, destinations: Sequence[str], *, now: datetime | None = None) -> bool:
        return bool(await self._value("SELECT redrive.has_suspect_1(%s::text[], %s)", [list(destinations), now]))

    async def make_partitions(self, *, width_seconds: float, ahead: int, now: datetime | None = None) -> int:
        return int(await self._value("SELECT redrive.make_partitions_1(%s, %s, %s)", [width_seconds, ahead, now]))

    async def ranges(self) -> Sequence[tuple[datetime, datetime]]:
        return [(row[0], row[1]) for row in await self.rows("SELECT * FROM redrive.ranges_1()", [])]

    async def retire(self, starts_at: datetime, *, now: datetime | None = None) -> str:
        return str(await self._value("SELECT redrive.retire_1(%s, %s)", [starts_at, now]))

    async def now(self) -> datetime:
        moment: datetime = await self._value("SELECT clock_timestamp()", [])
        return moment

    async def history(self, id: MessageId) -> Sequence[HistoryEntry]:
        rows = await self.rows(_HISTORY, [id])
        return [HistoryEntry(*row) for row in rows]


_SETTLE_DELIVERED: LiteralString = (
    "SELECT * FROM redrive.settle_delivered_1(%s, %b::uuid[], %b::integer[], %b::integer[], %s::text[], %b::text[], %s)"
)
_SETTLE: LiteralString = (
    "SELECT * FROM redrive.settle_1(%s, %s, %s::uuid[], %s::integer[], %s::text[], %s::text[], %s::text[], %s::text[],"
    " %s::text[], %s::text[], %s::text[], %s::integer[], %s::integer[], %s::integer[], %s::float8[], %s::text[],"
    " %s::boolean[], %s::text[], %s::text[], %s::text[], %s::boolean[], %s::boolean[], %s::text[], %s::text[],"
    " %s::text[], %s::text[], %s)"
)
_HISTORY: LiteralString = (
    "SELECT attempt, verb, stage, version, settlement, answer, code, text, reference, result, closed, worker, actor,"
    " reason, claimed_at, completed_at, latency_ms, spent, due_at"
    " FROM redrive.attempt WHERE message_id = %s ORDER BY completed_at, attempt"
)
_WHAT_APPLIES: Mapping[str, str] = {
    "held": "redrive held confirm | deny | discard",
    "unrecorded": "redrive unrecorded repair",
    "dead": "redrive messages requeue, or discard",
}


def _columns(rows: Iterable[Sequence[Any]], width: int) -> list[list[Any]]:
    columns = [list(column) for column in zip(*rows, strict=True)]
    return columns or [[] for _ in range(width)]


def _claimed(rows: Sequence[Any], lease_seconds: float, *, alone: bool) -> Claimed:
    attempts = [_attempt(row, lease_seconds, alone) for row in rows if row[1] is not None]
    return Claimed(attempts, expired=len(rows) - len(attempts))


# The columns of the type redrive.claimed, in its order, as the fields of an attempt.
_CLAIMED = (
    *("id", "number", "destination", "tenant", "kind", "key", "body", "content_type", "stage", "version", "spent"),
    *("lookups", "crashes", "claimed_at", "created_at", "headers", "order_by", "sequence", "in_doubt_since"),
    *("down_since", "first_failed_at", "expired", "cancel_requested", "kept_answer", "earlier", "level"),
)


def _attempt(row: Sequence[Any], lease_seconds: float, alone: bool) -> Attempt:
    """Filled by hand, because a frozen dataclass of thirty fields takes longer to make than its message to send."""
    attempt = Attempt.__new__(Attempt)
    values = attempt.__dict__
    values.update(zip(_CLAIMED, row, strict=True))
    values["headers"] = row[15] or {}
    values["earlier"] = tuple(_earlier(entry) for entry in row[24]) if row[24] else ()
    values["alone"] = alone
    values["lease_seconds"] = lease_seconds
    values["completion"] = Completion()
    return attempt


def _earlier(entry: dict[str, Any]) -> HistoryEntry:
    moments = {name: datetime.fromisoformat(entry[name]) if entry[name] else None for name in _MOMENTS}
    worker = UUID(entry["worker"]) if entry["worker"] else None
    return HistoryEntry(**{**entry, **moments, "worker": worker})


_MOMENTS = ("claimed_at", "completed_at", "due_at")


def _one_per_message(outcomes: Sequence[Outcome]) -> Iterator[Sequence[Outcome]]:
    """A statement sees the leases as they were before it, so two outcomes of one message go one after the other."""
    while outcomes:
        seen: set[MessageId] = set()
        batch: list[Outcome] = []
        rest: list[Outcome] = []
        for outcome in outcomes:
            (rest if outcome.attempt.id in seen else batch).append(outcome)
            seen.add(outcome.attempt.id)
        yield batch
        outcomes = rest


def _is_plain_delivery(outcome: Outcome) -> bool:
    answer = outcome.settlement.answer
    return (
        outcome.settlement.closed is Closed.DELIVERED
        and isinstance(answer, answers.Delivered)
        and answer.result is None
    )


def _delivered_values(worker: WorkerId, outcomes: Sequence[Outcome], now: datetime | None) -> list[Any]:
    return [
        worker,
        [o.attempt.id for o in outcomes],
        [o.attempt.number for o in outcomes],
        [o.latency_ms for o in outcomes],
        _or_none([_reference(o) for o in outcomes]),
        _or_one([o.policy_version for o in outcomes]),
        now,
    ]


def _or_none(values: list[Any]) -> list[Any] | None:
    """An array of nothing but NULL need not be sent: a shorter one is filled up with NULL."""
    return values if any(value is not None for value in values) else None


def _or_one(values: list[Any]) -> list[Any]:
    """An array of one value need not be repeated: settle_delivered takes the first where there is none."""
    return values if len(set(values)) > 1 else values[:1]


def settle_call(worker: WorkerId, verb: str, outcomes: Sequence[Outcome]) -> tuple[LiteralString, list[Any]]:
    """The statement that settles, for a connection which is not ours (`redrive.complete`)."""
    return _SETTLE, _settle_values(worker, verb, outcomes, None)


def _settle_values(worker: WorkerId, verb: str, outcomes: Sequence[Outcome], now: datetime | None) -> list[Any]:
    """The arrays of settle_1, in its order of parameters."""
    rows = [_settle_row(o) for o in outcomes]
    return [worker, verb, *_columns(rows, 24), now]


def _settle_row(outcome: Outcome) -> tuple[Any, ...]:
    settlement, answer = outcome.settlement, outcome.settlement.answer
    return (
        outcome.attempt.id,
        outcome.attempt.number,
        settlement.kind.value,
        settlement.closed and settlement.closed.value,
        answer and answers.label(answer),
        settlement.error_class,
        outcome.text and redact.storable(outcome.text),
        _reference(outcome),
        _json(getattr(answer, "result", None)),
        outcome.latency_ms,
        settlement.spent,
        settlement.lookups,
        float(settlement.delay_seconds),  # one array holds one type: an int beside a float would fail the batch
        _doubt(outcome),
        settlement.down,
        settlement.stage,
        settlement.destination,
        settlement.park_reason and settlement.park_reason.value,
        settlement.exhausted,
        settlement.halts,
        outcome.stack,
        _json(dict(outcome.context)) if settlement.kind is SettlementKind.PARK else None,
        _json(outcome.kept_answer),
        outcome.policy_version,
    )


def _doubt(outcome: Outcome) -> str:
    """Whether the doubt is gone, as old as it was, or new: `attempt` is what was left of it when the answer came."""
    if not outcome.settlement.in_doubt:
        return "none"
    return "keep" if outcome.attempt.in_doubt else "now"


def _reference(outcome: Outcome) -> str | None:
    reference = getattr(outcome.settlement.answer, "reference", None)
    return None if reference is None else redact.storable(reference, limit=REFERENCE_MAX)


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value, allow_nan=False)


def _settled(total: int, lost: Sequence[Any]) -> Settled:
    refused = [Fence(id, attempt) for id, attempt, result in lost if result == "refused"]
    repeated = [Fence(id, attempt) for id, attempt, result in lost if result == "repeated"]
    return Settled(total - len(lost), refused, repeated)


async def _run(record: Record, conn: AsyncConnection[Any], outcome: Outcome) -> None:
    """User code inside our transaction. Deadlock, serialisation, a lost connection are run again (ruling 16)."""
    try:
        await record(conn, outcome.attempt, outcome.settlement)
        if conn.info.transaction_status is not psycopg.pq.TransactionStatus.INTRANS:
            raise RuntimeError("record left the transaction aborted or ended it; it must do neither.")
    except BaseException as error:  # a record may raise SystemExit too; it must not take the relay along
        if _is_ours_to_retry(error, conn):
            raise
        raise RecordFailed(redact.error_type(error)) from error


def _is_ours_to_retry(error: BaseException, conn: AsyncConnection[Any]) -> bool:
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return conn.closed or isinstance(error, psycopg.errors.SerializationFailure | psycopg.errors.DeadlockDetected)


def _require_actor_and_reason(actor: str, reason: str) -> None:
    if not actor.strip() or not reason.strip():
        raise InvalidValue(f"An act needs an actor and a reason; actor is {actor!r}, reason is {reason!r}.")


def _no_such_message(id: MessageId) -> NotFound:
    return NotFound(f"There is no message {id}.", next="redrive messages list")
