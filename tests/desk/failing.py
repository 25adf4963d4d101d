"""Messages that failed, in one short call each."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from redrive.answers import Terminal
from redrive.message import MessageId, ParkReason, Priority
from redrive.ports import ClaimRequest
from redrive.store.runtime.postgres import PostgresStore
from tests.support import messages as m

ACT: dict[str, Any] = {"actor": "ada", "reason": "looked into it"}


async def dead(
    store: PostgresStore,
    *,
    count: int = 1,
    error_class: str = "HTTP_422",
    text: str | None = "customer is unknown",
    reason: ParkReason = ParkReason.DEAD,
    now: datetime = m.START,
    park: dict[str, Any] | None = None,
    **values: Any,
) -> list[MessageId]:
    """So many new messages, claimed and parked; values are the parameters of `enqueue_1`."""
    ids = [await m.enqueue(store, now=now, **values) for _ in range(count)]
    await fail_again(store, error_class=error_class, text=text, reason=reason, now=now, park=park,
                     destination=values.get("destination", m.DESTINATION))  # fmt: skip
    return ids


async def fail_again(
    store: PostgresStore,
    *,
    error_class: str = "HTTP_422",
    text: str | None = "customer is unknown",
    reason: ParkReason = ParkReason.DEAD,
    now: datetime = m.START,
    destination: str = m.DESTINATION,
    park: dict[str, Any] | None = None,
) -> Sequence[MessageId]:
    """Claim whatever is due there, and park it."""
    claim_requests = [ClaimRequest(destination, level.level, 1000) for level in Priority]
    settlement = m.park(reason, answer=Terminal(error_class), error_class=error_class, **(park or {}))
    parked: list[MessageId] = []
    while taken := (await store.claim(m.WORKER, claim_requests, lease_seconds=m.LEASE_SECONDS, now=now)).attempts:
        outcomes = [m.outcome(attempt, settlement, text=text) for attempt in taken]
        await store.settle(m.WORKER, outcomes, now=now)
        parked += [attempt.id for attempt in taken]
    return parked
