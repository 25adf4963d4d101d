"""Messages for tests: an attempt made by hand, and the verbs of a life in one short call each.

`attempt()` needs no database. The rest takes a store and moves time by `at(seconds)`, never by sleeping. A
message is enqueued by `redrive.enqueue_1`, as any language would do it, so that these helpers need nothing of
`redrive.produce`. Used by every suite that needs a message in a certain state.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal
from uuid import UUID

from redrive.answers import Answer, Delivered, Retryable, to_json
from redrive.message import Attempt, Closed, HistoryEntry, MessageId, ParkReason, Priority, WorkerId
from redrive.policy import Settlement, SettlementKind
from redrive.ports import Claimed, ClaimRequest, Outcome, Settled
from redrive.store.runtime.postgres import PostgresStore

DESTINATION: Final = "shop"
LEASE_SECONDS: Final = 60.0
# Long after the start of any test's server: the reaper waits for the server's start plus a lease.
START: Final = datetime(2040, 1, 1, tzinfo=UTC)
WORKER: Final = WorkerId(UUID(int=0xA))
OTHER_WORKER: Final = WorkerId(UUID(int=0xB))
SOME_ID: Final = MessageId(UUID("01890a5d-ac96-774b-bcce-b302099a8057"))
PLAIN_ROOMS: Final = tuple(ClaimRequest(DESTINATION, level.level, 100) for level in Priority)


def at(seconds: float = 0.0) -> datetime:
    """That many seconds after the start of the test's own time."""
    return START + timedelta(seconds=seconds)


def attempt(**changes: Any) -> Attempt:
    """The first claim of an ordinary message; any field of `Attempt` may be changed."""
    plain: dict[str, Any] = {
        "id": SOME_ID,
        "number": 1,
        "destination": DESTINATION,
        "tenant": "default",
        "kind": "order.placed",
        "key": "order:1",
        "body": b'{"order":1}',
        "content_type": "application/json",
        "stage": "first",
        "version": 1,
        "spent": 0,
        "lookups": 0,
        "crashes": 0,
        "alone": False,
        "claimed_at": START,
        "created_at": START,
        "lease_seconds": LEASE_SECONDS,
    }
    return Attempt(**{**plain, **changes})


def entry(verb: str, seconds: float, **changes: Any) -> HistoryEntry:
    """A row of the archive that was written so many seconds after the start."""
    empty: dict[str, Any] = dict.fromkeys(field.name for field in fields(HistoryEntry))
    return HistoryEntry(**{**empty, "attempt": 1, "spent": 0, "verb": verb, "completed_at": at(seconds), **changes})


async def enqueue_row(store: PostgresStore, *, now: datetime | None = START, **values: Any) -> tuple[Any, ...]:
    """Call `redrive.enqueue_1`; returns its row: result, id, sequence, state."""
    given = {
        "destination": DESTINATION,
        "body": b'{"order":1}',
        "key": None,
        "tenant": "default",
        "kind": "order.placed",
        "due_at": None,
        "expires_at": None,
        "level": Priority.NORMAL.level,
        "order_by": None,
        "token_seed": None,
        **values,
    }
    headers = given.pop("headers", None)
    rows = await store.rows(
        "SELECT result, id, sequence, state FROM redrive.enqueue_1(%(destination)s, %(body)s, %(key)s,"
        " %(tenant)s, %(kind)s, p_headers => %(headers)s::json, p_due_at => %(due_at)s,"
        " p_expires_at => %(expires_at)s, p_level => %(level)s::smallint,"
        " p_order_by => %(order_by)s, p_token_seed => %(token_seed)s, p_now => %(now)s)",
        {**given, "headers": headers and json.dumps(headers), "now": now},
    )
    return tuple(rows[0])


async def enqueue(store: PostgresStore, *, now: datetime | None = START, **values: Any) -> MessageId:
    """One new message, by default to `DESTINATION`, due at once; values are the parameters of `enqueue_1`."""
    result, message_id, _, _ = await enqueue_row(store, now=now, **values)
    assert result == "new", result
    return MessageId(message_id)


async def claim_all(store: PostgresStore, *, now: datetime = START, worker: WorkerId = WORKER) -> Claimed:
    """Everything that is due at `DESTINATION`."""
    return await store.claim(worker, PLAIN_ROOMS, lease_seconds=LEASE_SECONDS, now=now)


async def claim(store: PostgresStore, *, now: datetime = START, worker: WorkerId = WORKER) -> Attempt:
    """The one message that is due at `DESTINATION`."""
    (taken,) = (await claim_all(store, now=now, worker=worker)).attempts
    return taken


async def claim_suspect(store: PostgresStore, *, now: datetime = START, worker: WorkerId = OTHER_WORKER) -> Attempt:
    """The next message that came back from a crash."""
    taken = await store.claim_suspect(worker, [DESTINATION], lease_seconds=LEASE_SECONDS, now=now)
    return taken.attempts[0]


def close(answer: Answer | None = None, *, closed: Closed = Closed.DELIVERED, **changes: Any) -> Settlement:
    answer = Delivered(reference="ref-1") if answer is None and closed is Closed.DELIVERED else answer
    return Settlement(kind=SettlementKind.CLOSE, answer=answer, closed=closed, **{"spent": 1, **changes})


def retry(answer: Answer | None = None, *, delay_seconds: float = 0.0, **changes: Any) -> Settlement:
    return Settlement(
        kind=SettlementKind.RETRY,
        answer=answer or Retryable("HTTP_503"),
        delay_seconds=delay_seconds,
        **{"spent": 1, "error_class": "HTTP_503", **changes},
    )


def advance(stage: str = "second", **changes: Any) -> Settlement:
    return Settlement(kind=SettlementKind.ADVANCE, stage=stage, **changes)


def park(reason: ParkReason = ParkReason.DEAD, **changes: Any) -> Settlement:
    doubt = reason is ParkReason.HELD
    return Settlement(
        kind=SettlementKind.PARK,
        park_reason=reason,
        **{"spent": 1, "error_class": "HTTP_400", "in_doubt": doubt, "halts": True, **changes},
    )


def outcome(attempt: Attempt, settlement: Settlement, **values: Any) -> Outcome:
    """What a relay hands to `settle`; an unrecorded message keeps the answer."""
    kept: Mapping[str, Any] | None = None
    if settlement.park_reason is ParkReason.UNRECORDED:
        kept = to_json(settlement.answer or Delivered(reference="ref-1"))
    return Outcome(attempt=attempt, settlement=settlement, **{"latency_ms": 5, "kept_answer": kept, **values})


async def settle(
    store: PostgresStore,
    attempt: Attempt,
    settlement: Settlement,
    *,
    now: datetime = START,
    worker: WorkerId = WORKER,
    **values: Any,
) -> Settled:
    """Settle one claim; further values are fields of `Outcome`."""
    return await store.settle(worker, [outcome(attempt, settlement, **values)], now=now)


async def state_of(store: PostgresStore, message_id: MessageId) -> str:
    """none, pending, leased, parked·<reason>, or how it was closed."""
    rows = await store.rows(
        "SELECT coalesce((SELECT 'parked·' || reason FROM redrive.parked WHERE id = %s), redrive.state_of(%s), 'none')",
        [message_id, message_id],
    )
    return str(rows[0][0])


async def row(
    store: PostgresStore, table: Literal["pending", "lease", "parked"], message_id: MessageId
) -> dict[str, Any]:
    """The one row of a message in pending, lease or parked, as a dictionary."""
    query = f"SELECT row_to_json(t)::text FROM redrive.{table} t WHERE id = %s"
    (found,) = await store.rows(query, [message_id])
    return dict(json.loads(found[0]))


async def conserved(store: PostgresStore) -> bool:
    """enqueued = pending + leased + parked + closed, in one snapshot (G-28)."""
    (counts,) = await store.rows("SELECT enqueued, pending, leased, parked, closed FROM redrive.conservation", [])
    return bool(counts[0] == sum(counts[1:]))
