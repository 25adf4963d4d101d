"""What the tests of this directory say in one word: moments, workers, outcomes, messages in a given state."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from redrive import answers
from redrive.answers import Advance, Delivered, Retryable, Terminal, Unknown
from redrive.message import Attempt, Closed, MessageId, NewMessage, ParkReason, Priority, WorkerId
from redrive.policy import Settlement, SettlementKind
from redrive.ports import ClaimRequest, Outcome
from tests.conformance.subjects import Subject

# Later than any server's start: the rule about an outage of PostgreSQL applies only where a test means it.
T0 = datetime(2100, 1, 1, tzinfo=UTC)
ALICE = WorkerId(UUID(int=1))
BOB = WorkerId(UUID(int=2))
NOBODY = MessageId(UUID("01900000-0000-7000-8000-000000000000"))
MAIL = "mail"
LEASE_SECONDS = 30.0
ACT: dict[str, Any] = {"actor": "ada", "reason": "asked the bank"}


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def enqueue(store: Subject, *, now: datetime = T0, destination: str = MAIL, **values: Any) -> MessageId:
    """One message; its payload says nothing."""
    return store.enqueue(NewMessage(destination, {"n": 1}, **values), now=now).id


def enqueue_lane(store: Subject, count: int, *, key: str = "k", **values: Any) -> list[MessageId]:
    """So many messages of one ordering key."""
    return [enqueue(store, order_by=key, **values) for _ in range(count)]


def order(attempts: Sequence[Attempt]) -> list[tuple[str | None, int | None]]:
    """Ordering key and sequence of what was claimed."""
    return sorted((attempt.order_by, attempt.sequence) for attempt in attempts)


async def claim(
    store: Subject,
    *,
    now: datetime = T0,
    worker: WorkerId = ALICE,
    destination: str = MAIL,
    priority: Priority = Priority.NORMAL,
    room: int = 100,
    lease_seconds: float = LEASE_SECONDS,
) -> Sequence[Attempt]:
    claim_requests = [ClaimRequest(destination, priority.level, room)]
    return (await store.claim(worker, claim_requests, lease_seconds=lease_seconds, now=now)).attempts


async def claim_one(store: Subject, **values: Any) -> Attempt:
    attempts = await claim(store, **values)
    assert len(attempts) == 1
    return attempts[0]


async def claim_alone(
    store: Subject, *, now: datetime = T0, worker: WorkerId = BOB, destination: str = MAIL
) -> Attempt:
    claimed = await store.claim_suspect(worker, [destination], lease_seconds=LEASE_SECONDS, now=now)
    assert len(claimed.attempts) == 1
    return claimed.attempts[0]


async def crashed(store: Subject, *, now: datetime = T0, **values: Any) -> MessageId:
    """A message whose first claim was lost to a dead worker: pending, in doubt, a suspect."""
    id = enqueue(store, now=now, **values)
    await claim_one(store, now=now)
    assert (await store.reap(limit=10, worker=ALICE, now=now)).requeued == 1
    return id


def delivered(attempt: Attempt, *, reference: str | None = None, result: Any = None) -> Outcome:
    settlement = Settlement(
        kind=SettlementKind.CLOSE,
        answer=Delivered(reference, result),
        closed=Closed.DELIVERED,
        spent=attempt.spent + 1,
    )
    return Outcome(attempt=attempt, settlement=settlement, latency_ms=12, policy_version="p1")


def retried(
    attempt: Attempt,
    *,
    delay_seconds: float = 0.0,
    in_doubt: bool = False,
    down: bool = False,
    lookups: int = 0,
) -> Outcome:
    settlement = Settlement(
        kind=SettlementKind.RETRY,
        answer=Unknown("READ_TIMEOUT") if in_doubt else Retryable("HTTP_503"),
        error_class="READ_TIMEOUT" if in_doubt else "HTTP_503",
        spent=attempt.spent + 1,
        lookups=lookups,
        delay_seconds=delay_seconds,
        in_doubt=in_doubt,
        down=down,
    )
    return Outcome(attempt=attempt, settlement=settlement, latency_ms=34, text="Try later.", policy_version="p2")


def advanced(attempt: Attempt, stage: str, *, result: Any = None, destination: str | None = None) -> Outcome:
    settlement = Settlement(
        kind=SettlementKind.ADVANCE,
        answer=Advance(stage, result, destination),
        stage=stage,
        destination=destination,
    )
    return Outcome(attempt=attempt, settlement=settlement)


def parked(attempt: Attempt, reason: ParkReason = ParkReason.DEAD, *, halts: bool = True) -> Outcome:
    """Dead by a terminal answer, held in doubt, or unrecorded with the answer kept."""
    answer = {
        ParkReason.DEAD: Terminal("HTTP_422"),
        ParkReason.HELD: Unknown("IN_DOUBT"),
        ParkReason.UNRECORDED: Delivered("r-1"),
    }[reason]
    settlement = Settlement(
        kind=SettlementKind.PARK,
        answer=answer,
        park_reason=reason,
        error_class=getattr(answer, "code", "RECORD_FAILED"),
        spent=attempt.spent + 1,
        in_doubt=reason is ParkReason.HELD,
        halts=halts,
    )
    return Outcome(
        attempt=attempt,
        settlement=settlement,
        text="It was refused.",
        stack="ValueError",
        context={"stage": attempt.stage},
        kept_answer=answers.to_json(answer) if reason is ParkReason.UNRECORDED else None,
        policy_version="p3",
    )


async def deliver(store: Subject, attempt: Attempt, *, now: datetime = T0, worker: WorkerId = ALICE) -> None:
    await settle(store, delivered(attempt), now=now, worker=worker)


async def settle(store: Subject, outcome: Outcome, *, now: datetime = T0, worker: WorkerId = ALICE) -> None:
    """Settle one outcome that must be accepted."""
    settled = await store.settle(worker, [outcome], now=now)
    assert (settled.settled, settled.refused, settled.repeated) == (1, [], [])


async def put_into(store: Subject, state: str) -> MessageId:
    """A new message in the given state, by T0 + 3 at the latest: the word that a refusal would use for it."""
    if state == "expired":
        id = enqueue(store, expires_at=at(1))
        assert await store.expire(limit=10, now=at(1)) == 1
        return id
    id = enqueue(store)
    if state == "pending":
        return id
    if state == "cancelled":
        await store.cancel(id, now=at(1))
        return id
    attempt = await claim_one(store)
    if state == "delivered":
        await settle(store, delivered(attempt), now=at(1))
    elif state == "discarded":
        await settle(store, parked(attempt), now=at(1))
        await store.discard(id, **ACT, now=at(2))
    elif state != "leased":
        await settle(store, parked(attempt, ParkReason(state)), now=at(1))
    return id


PARKED = ("dead", "held", "unrecorded")
CLOSED = ("delivered", "expired", "cancelled", "discarded")
STATES = ("pending", "leased", *PARKED, *CLOSED)
