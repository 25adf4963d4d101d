"""A message in any state of docs/states.md, with what is known of its past.

Before it reaches its state, every message loses one claim to the reaper and is tried once more, so that a
lost claim (`stale`) is at hand and a refused outcome can be told from one that is merely early.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from redrive.answers import Delivered
from redrive.message import Attempt, MessageId, ParkReason
from redrive.policy import Settlement
from redrive.store.runtime.postgres import PostgresStore
from tests.support import messages as m

KEY = "order:1"
ORDER_BY = "customer:1"
EXPIRES_AT = m.at(10_000)
NOBODY = MessageId(UUID("01890a5d-ac96-774b-bcce-000000000000"))
PARKED = {f"parked·{reason}": reason for reason in ParkReason}


@dataclass(frozen=True, kw_only=True)
class Situation:
    """stale: a claim that was reaped. held: the claim in hand, else `stale`. last: what was settled last."""

    id: MessageId
    key: str
    stale: Attempt
    held: Attempt
    last: tuple[Attempt, Settlement]
    now: datetime


async def reach(store: PostgresStore, state: str, *, order_by: str | None = None) -> Situation:
    """A message in that state, at 200 seconds of the test's time."""
    if state == "none":
        return _nobody()
    pending = await _tried_twice(store, order_by)
    if state == "pending":
        return pending
    claimed = await m.claim(store, now=m.at(200))
    if state == "leased":
        return replace(pending, held=claimed)
    settlement = m.park(PARKED[state]) if state in PARKED else m.close(Delivered(reference="ref-1"))
    await m.settle(store, claimed, settlement, now=m.at(200))
    return replace(pending, last=(claimed, settlement))


def _nobody() -> Situation:
    ghost = m.attempt(id=NOBODY)
    return Situation(id=NOBODY, key=KEY, stale=ghost, held=ghost, last=(ghost, m.retry()), now=m.at(200))


async def _tried_twice(store: PostgresStore, order_by: str | None) -> Situation:
    """Pending, not in doubt, no suspect; attempt 1 was reaped, attempt 2 found that nothing had happened."""
    message_id = await m.enqueue(store, key=KEY, expires_at=EXPIRES_AT, order_by=order_by)
    stale = await m.claim(store, worker=m.OTHER_WORKER)
    await store.reap(limit=10, now=m.at(100))
    second = await m.claim_suspect(store, now=m.at(100), worker=m.WORKER)
    settlement = m.retry(spent=1)
    await m.settle(store, second, settlement, now=m.at(200))
    return Situation(id=message_id, key=KEY, stale=stale, held=stale, last=(second, settlement), now=m.at(200))


async def picture(store: PostgresStore, message_id: MessageId) -> Any:
    """Everything that the engine has of one message, to see whether anything changed."""
    rows = await store.rows(
        "SELECT (SELECT row_to_json(p)::text FROM redrive.pending p WHERE id = %(id)s) AS pending,"
        " (SELECT row_to_json(l)::text FROM redrive.lease l WHERE id = %(id)s) AS lease,"
        " (SELECT row_to_json(k)::text FROM redrive.parked k WHERE id = %(id)s) AS parked,"
        " (SELECT count(*) FROM redrive.attempt WHERE message_id = %(id)s) AS attempts,"
        " (SELECT count(*) FROM redrive.message) AS messages,"
        " (SELECT count(*) FROM redrive.operator_action) AS acts",
        {"id": message_id},
    )
    return rows[0]


async def late_answers(store: PostgresStore) -> int:
    return int((await store.rows("SELECT count(*) FROM redrive.late_answer", []))[0][0])
