"""PostgreSQL's promises without PostgreSQL: every verb of `redrive.ports.Store` on dictionaries.

For seeded simulations and for tests of code that needs a store. Deterministic: ids come from the `random`
it is given (UUIDv7 by its own clock), time from `time`; nothing else varies. Every verb is atomic: it runs
without giving up control, and `settle_one` keeps its claim locked while the record runs, as the row lock
does. What a verb does to one message is in `transitions`; here is which messages it touches, with `lanes`
for those that have an ordering key. Not modelled: tokens, failure groups,
the workflow of the desk, replays, the audit, grants.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from redrive.answers import Delivered, label
from redrive.message import Attempt, Closed, Fence, HistoryEntry, MessageId, ParkReason, WorkerId, token
from redrive.policy import SettlementKind
from redrive.ports import (
    Claimed,
    ClaimRequest,
    ClaimState,
    HandOver,
    LowWaterMark,
    MendedLanes,
    Now,
    Outcome,
    Place,
    PutOff,
    Reaped,
    Record,
    RecordFailed,
    RecordWaits,
    Settled,
    TransientFailure,
)
from tests.model_store import lanes, transitions
from tests.model_store.desk import Desk
from tests.model_store.limit_keys import LimitKeys
from tests.model_store.tables import LateAnswer
from tests.model_store.transitions import Lane, Lease, Move, Pending
from tests.model_store.upkeep import CLOCK_TOLERANCE

EARLIER_MAX: Final = 50  # archive rows that an attempt carries


@dataclass
class ModelStore(LimitKeys, Desk):
    """connection: what a `record` is given."""

    connection: Any = None

    # claim

    async def claim(
        self, worker: WorkerId, claim_requests: Sequence[ClaimRequest], *, lease_seconds: float, now: Now = None
    ) -> Claimed:
        moment = self.at(now)
        heads = self._free_heads().values()
        within, held_back = self._within_limits(
            claim_requests, lambda room: len(self._due(room, heads, moment)), moment
        )
        taken = {pending.id: pending for room in within for pending in self._due(room, heads, moment)}
        claimed = self._take(taken.values(), worker, alone=False, lease_seconds=lease_seconds, now=moment)
        return replace(claimed, held_back=held_back)

    def _due(self, room: ClaimRequest, free: Iterable[Pending], now: datetime) -> list[Pending]:
        """What fits into one room: heads of lanes in turn, and of the others the longest due."""
        if not self.is_open(room.destination, now):
            return []
        unordered = (p for p in self._pending.values() if p.lane is None and _is_due(p, room, now))
        others = heapq.nsmallest(room.room, unordered, key=_by_due)
        heads = [head for head in free if _is_due(head, room, now)]
        heads.sort(key=lambda head: lanes.waits_since(head, self._released))
        since = [lanes.waits_since(head, self._released) for head in heads]
        taken = heads[: lanes.share_of_lanes(room.room, since, [p.due_at for p in others])]
        return taken + others[: room.room - len(taken)]

    async def claim_suspect(
        self, worker: WorkerId, destinations: Sequence[str], *, lease_seconds: float, now: Now = None
    ) -> Claimed:
        moment = self.at(now)
        if any(lease.worker == worker for lease in self._leases.values()):
            return Claimed([])
        first = self._due_suspects(destinations, moment)[:1]
        return self._take(first, worker, alone=True, lease_seconds=lease_seconds, now=moment)

    async def low_water(
        self, places: Sequence[tuple[Place, datetime | None]], *, now: Now = None
    ) -> Sequence[LowWaterMark]:
        return []

    async def suspect_destinations(
        self, destinations: Sequence[str], *, after: str = "", limit: int = 100, now: Now = None
    ) -> Sequence[str]:
        names = {pending.destination for pending in self._due_suspects(destinations, self.at(now))}
        return sorted(names, key=lambda name: (name <= after, name))[:limit]

    def _due_suspects(self, destinations: Sequence[str], now: datetime) -> list[Pending]:
        """Unordered ones first; one of a lane only while it is its head."""
        open_ones = {name for name in destinations if self.is_open(name, now) and self.has_room(name, now)}
        unordered = sorted((p for p in self._pending.values() if p.lane is None), key=_by_due)
        heads = sorted(self._free_heads().values(), key=lambda head: head.due_at)
        return [p for p in unordered + heads if p.suspect and p.due_at <= now and p.destination in open_ones]

    def _take(
        self, taken: Iterable[Pending], worker: WorkerId, *, alone: bool, lease_seconds: float, now: datetime
    ) -> Claimed:
        leased: dict[str, list[MessageId]] = {}
        attempts, expired, gone = [], 0, 0
        for pending in taken:
            counted = self._destination(pending.destination).limited
            move = transitions.claimed(
                pending,
                worker,
                alone=alone,
                counted=counted,
                lease_seconds=lease_seconds,
                now=now,
                proven=self.has_evidence(pending.id),
            )
            self._move(pending.id, move)
            if isinstance(move.to, Lease) and pending.id not in self._messages:
                gone += 1
                self._move(pending.id, transitions.gone(move.to, now, proven=self.has_evidence(pending.id)))
            elif isinstance(move.to, Lease):
                leased.setdefault(pending.destination, []).append(pending.id)
                attempts.append(self._attempt(move.to, expired=transitions.has_expired(pending, now)))
            else:
                expired += 1
        self._charge(leased, now)
        return Claimed([replace(a, probe=self._is_probe(a)) for a in attempts], expired, gone)

    def _is_probe(self, attempt: Attempt) -> bool:
        known = self._destination(attempt.destination)
        return known.breaker == "half_open" and known.breaker_probe == attempt.id

    def _attempt(self, lease: Lease, *, expired: bool) -> Attempt:
        message = self._messages[lease.id]
        return Attempt(
            id=lease.id,
            number=lease.attempt,
            destination=lease.destination,
            tenant=lease.tenant,
            kind=message.asked.kind,
            key=message.asked.key,
            body=message.asked.body,
            content_type=message.asked.content_type,
            stage=lease.stage,
            version=lease.version,
            spent=lease.spent,
            lookups=lease.lookups,
            crashes=lease.crashes,
            alone=lease.alone,
            claimed_at=lease.claimed_at,
            created_at=message.created_at,
            lease_seconds=lease.lease_seconds,
            level=lease.level,
            headers=dict(message.headers),
            order_by=message.asked.order_by,
            sequence=lease.sequence,
            in_doubt_since=lease.in_doubt_since,
            down_since=lease.down_since,
            first_failed_at=lease.first_failed_at,
            expired=expired,
            cancel_requested=lease.cancel_requested,
            kept_answer=lease.kept_answer,
            earlier=_carried(self._history(lease.id)),
            stored_token=self._token(lease, message.asked.token_seed),
            token_used_since=self._token_used_since(lease),
            has_evidence=self.has_evidence(lease.id),
        )

    def _token(self, lease: Lease, seed: str | None) -> UUID | None:
        """As `verbs/token.sql` makes it: None for the first of a message without a seed, which is its id."""
        made = UUID(token(lease.id, lease.version, lease.stage, tenant=lease.tenant, seed=seed))
        return None if made == lease.id else made

    def _token_used_since(self, lease: Lease) -> datetime | None:
        """When a claim of this version and stage first used the token, where in doubt."""
        if lease.in_doubt_since is None:
            return None
        used = [
            row.claimed_at
            for row in self._history(lease.id)
            if row.verb in {"settle", "complete", "reap"}
            and (row.version, row.stage) == (lease.version, lease.stage)
            and row.claimed_at is not None
        ]
        return min(used, default=None)

    # settle, hand back, renew, reap: the fence is (id, attempt) and the worker

    async def settle(
        self,
        worker: WorkerId,
        outcomes: Sequence[Outcome],
        *,
        hand_over: HandOver | None = None,
        wait: bool = True,
        now: Now = None,
    ) -> Settled:
        if wait:
            await self._unlocked(o.attempt.id for o in outcomes)
        busy = tuple(o.attempt.fence for o in outcomes if self._is_busy(o.attempt.fence))
        settled = self._settle(worker, [o for o in outcomes if o.attempt.fence not in busy], self.at(now), hand_over)
        return replace(settled, busy=busy)

    async def settle_one(
        self,
        worker: WorkerId,
        outcome: Outcome,
        record: Record,
        *,
        on_step: Callable[[str], None],
        wait: bool = True,
        lock_seconds: float | None = None,
        now: Now = None,
    ) -> Settled:
        on_step("fence")
        if wait:
            await self._unlocked([outcome.attempt.id])
        elif self._is_busy(outcome.attempt.fence):
            return Settled(0, busy=(outcome.attempt.fence,))
        if self._held(outcome.attempt.fence, by=worker) is not None:
            on_step("record")
            await self._record(record, outcome)
        on_step("settle")
        moment = self.at(now)
        on_step("commit")
        return self._settle(worker, [outcome], moment)

    async def _record(self, record: Record, outcome: Outcome) -> None:
        """User code while the claim is locked; whatever it raises, nothing of ours has changed."""
        self._fenced[outcome.attempt.id] = asyncio.Event()
        try:
            await record(self.connection, outcome.attempt, outcome.settlement)
        except (TransientFailure, RecordWaits):
            raise
        except Exception as error:
            raise RecordFailed(type(error).__qualname__) from error
        finally:
            self._fenced.pop(outcome.attempt.id).set()

    async def _unlocked(self, ids: Iterable[MessageId]) -> None:
        """Wait, as for a row lock, until no record runs for any of these."""
        for id in sorted(set(ids)):
            while id in self._fenced:
                await self._fenced[id].wait()

    def _is_busy(self, fence: Fence) -> bool:
        """Held, and locked by a record that runs."""
        return fence.id in self._fenced and self._held(fence) is not None

    def _settle(
        self, worker: WorkerId, outcomes: Sequence[Outcome], now: datetime, hand_over: HandOver | None = None
    ) -> Settled:
        """All moves are worked out before the first is made, so that a bad outcome changes nothing."""
        moves = {o.attempt.fence: self._settled_move(worker, o, now) for o in reversed(outcomes)}
        refused, repeated = [], []
        released: dict[Lane, str] = {}
        for outcome in outcomes:
            fence = outcome.attempt.fence
            move = moves.pop(fence, None)
            if move is not None:
                lease = self._leases[fence.id]
                if hand_over is not None and fence.id in hand_over.ids and lease.lane and _is_plain_delivery(outcome):
                    released[lease.lane] = lease.destination
                self._move(fence.id, move)
            elif self._has_settled(worker, outcome):
                repeated.append(fence)
            else:
                refused.append(fence)
                self.late_answers.append(late := _late(worker, outcome, now))
                self._weigh(late)
        following = self._following(released, now)
        claimed = self._take(following, worker, alone=False, lease_seconds=_seconds(hand_over), now=now)
        settled = len(outcomes) - len(refused) - len(repeated)
        return Settled(settled, refused, repeated, tuple(claimed.attempts))

    def _following(self, released: Mapping[Lane, str], now: datetime) -> list[Pending]:
        """The next messages of lanes whose last one was delivered just now, with its destination."""
        free = self._free_heads() if released else {}
        return [
            free[lane]
            for lane, destination in released.items()
            if lane in free and self.hands_over(destination, now) and lanes.may_follow(free[lane], destination, now)
        ]

    def _settled_move(self, worker: WorkerId, outcome: Outcome, now: datetime) -> Move | None:
        lease = self._held(outcome.attempt.fence, by=worker)
        if lease is None:
            return None
        kept = self._within_owner(lease, outcome)
        return transitions.settled(lease, kept, now, proven=self.has_evidence(lease.id))

    def _weigh(self, late: LateAnswer) -> None:
        """A late success is evidence where money moves, where the destination is asked, or where it holds in doubt."""
        claims = (row for row in self._archive.get(late.message_id, ()) if row.attempt == late.attempt)
        message = self._messages.get(late.message_id)
        if late.answer != "delivered" or message is None or next(claims, None) is None:
            return
        known = self._destination(message.asked.destination)
        if known.money or known.in_doubt in {"lookup", "hold"}:
            self.add_evidence(
                late.message_id, "late_answer", f"attempt {late.attempt}", reference=late.reference, now=late.at
            )

    def _within_owner(self, lease: Lease, outcome: Outcome) -> Outcome:
        """The outcome; parked where it would advance into a destination of another system (P-13)."""
        settlement = outcome.settlement
        to = settlement.destination if settlement.kind is SettlementKind.ADVANCE else None
        owner = None if to is None else self.owner_of(to)
        if owner is None or owner == self.owner_of(lease.destination):
            return outcome
        parked = replace(
            settlement,
            kind=SettlementKind.PARK,
            park_reason=ParkReason.HELD if settlement.in_doubt else ParkReason.DEAD,
            error_class="DESTINATION_OWNED",
            halts=True,
        )
        text = f"The destination {to} belongs to a system; only its own functions enqueue there."
        return replace(outcome, settlement=parked, text=text)

    def _has_settled(self, worker: WorkerId, outcome: Outcome) -> bool:
        """This very answer, by this very worker: a commit whose reply was lost."""
        given = outcome.settlement.answer
        said = (outcome.attempt.number, worker, "settle", None if given is None else label(given))
        return any((r.attempt, r.worker, r.verb, r.answer) == said for r in self._archive.get(outcome.attempt.id, ()))

    async def hand_back(
        self,
        worker: WorkerId,
        fences: Sequence[Fence],
        *,
        suspect: bool = False,
        wait: bool = True,
        put_off: Mapping[Fence, PutOff] | None = None,
        now: Now = None,
    ) -> Sequence[Fence]:
        if wait:
            await self._unlocked(fence.id for fence in fences)
        moment = self.at(now)
        ours = self._ours(worker, [fence for fence in fences if not self._is_busy(fence)])
        for lease in ours:
            asked = None if put_off is None else put_off.get(Fence(lease.id, lease.attempt))
            later = asked and self._put_off(lease.destination, asked, moment)
            proven = self.has_evidence(lease.id)
            self._move(lease.id, transitions.handed_back(lease, moment, suspect=suspect, proven=proven, put_off=later))
        return [Fence(lease.id, lease.attempt) for lease in ours]

    async def renew(
        self, worker: WorkerId, fences: Sequence[Fence], *, lease_seconds: float, now: Now = None
    ) -> Sequence[Fence]:
        until = self.at(now) + timedelta(seconds=lease_seconds)
        ours = self._ours(worker, fences)
        for lease in ours:
            if lease.id not in self._fenced:
                self._leases[lease.id] = replace(lease, until=until, lease_seconds=lease_seconds)
        return [Fence(lease.id, lease.attempt) for lease in ours]

    def _ours(self, worker: WorkerId, fences: Sequence[Fence]) -> list[Lease]:
        return [lease for fence in dict.fromkeys(fences) if (lease := self._held(fence, by=worker))]

    async def check_claims(self, worker: WorkerId, fences: Sequence[Fence], *, now: Now = None) -> Sequence[ClaimState]:
        moment = self.at(now)
        return [
            ClaimState(
                Fence(lease.id, lease.attempt),
                cancel_requested=lease.cancel_requested,
                expired=transitions.has_expired(lease, moment),
                has_evidence=self.has_evidence(lease.id),
            )
            for lease in self._ours(worker, fences)
        ]

    async def leases_of(self, worker: WorkerId) -> Sequence[Fence]:
        ours = sorted(lease.id for lease in self._leases.values() if lease.worker == worker)
        return [Fence(id, self._leases[id].attempt) for id in ours]

    async def is_leased(self, fence: Fence) -> bool:
        return self._held(fence) is not None

    def _held(self, fence: Fence, *, by: WorkerId | None = None) -> Lease | None:
        lease = self._leases.get(fence.id)
        if lease is None or lease.attempt != fence.attempt:
            return None
        return lease if by is None or lease.worker == by else None

    async def reap(
        self, *, limit: int, worker: WorkerId | None = None, expected: datetime | None = None, now: Now = None
    ) -> Reaped:
        moment = self.at(now)
        if worker is None:
            if expected is not None and abs(moment - expected) > CLOCK_TOLERANCE:
                return Reaped(0, unconfirmed=True)
            for lease in self._leases.values():
                length = timedelta(seconds=lease.lease_seconds)
                if lease.until > moment + length + CLOCK_TOLERANCE and lease.id not in self._fenced:
                    self._leases[lease.id] = replace(lease, until=moment + length)
        code = "LEASE_RAN_OUT" if worker is None else "WORKER_DIED"
        ended = [lease for lease in self._leases.values() if self._is_over(lease, worker, moment)][:limit]
        for lease in ended:
            self._move(lease.id, transitions.reaped(lease, code, moment))
        return Reaped(len(ended))

    def _is_over(self, lease: Lease, worker: WorkerId | None, now: datetime) -> bool:
        """Ran out, also counted from the server's start and from the last jump of its clock."""
        length = timedelta(seconds=lease.lease_seconds)
        if lease.id in self._fenced:
            return False
        if worker is not None:
            return lease.worker == worker
        since = (self.server_started_at, *(jump.noticed_at for jump in self.jumps))
        return lease.until < now and all(now > at + length for at in since if at <= now)

    async def expire(self, *, limit: int, now: Now = None) -> int:
        moment = self.at(now)
        over = (p for p in self._pending.values() if transitions.has_expired(p, moment) and transitions.may_just_end(p))
        due = (p for p in over if not self.has_evidence(p.id))
        ended = heapq.nsmallest(limit, due, key=lambda p: (p.expires_at, p.id))
        for pending in ended:
            self._move(pending.id, transitions.expired(pending, moment))
        return len(ended)

    async def mend_lanes(self, *, lanes: int, now: Now = None) -> MendedLanes:
        return MendedLanes(mended=0, looked_at=0, is_over=True)


def _is_plain_delivery(outcome: Outcome) -> bool:
    """What is settled in bulk, and may hand over its lane."""
    answer = outcome.settlement.answer
    return outcome.settlement.closed is Closed.DELIVERED and isinstance(answer, Delivered) and answer.result is None


def _seconds(hand_over: HandOver | None) -> float:
    return 0.0 if hand_over is None else hand_over.lease_seconds


def _is_due(pending: Pending, room: ClaimRequest, now: datetime) -> bool:
    """Suspects are not for everybody."""
    fits = pending.destination == room.destination and pending.level == room.level
    return fits and not pending.suspect and pending.due_at <= now


def _by_due(pending: Pending) -> tuple[datetime, MessageId]:
    return pending.due_at, pending.id


def _late(worker: WorkerId, outcome: Outcome, now: datetime) -> LateAnswer:
    said = transitions.said(outcome)
    assert said["settlement"] is not None
    return LateAnswer(
        outcome.attempt.id,
        outcome.attempt.number,
        worker,
        now,
        said["settlement"],
        said["answer"],
        said["code"],
        said["reference"],
        transitions.storable_text(outcome),
    )


def _carried(history: Sequence[HistoryEntry]) -> tuple[HistoryEntry, ...]:
    """What an attempt carries of its archive: the newest rows, and before them the latest end of each stage."""
    newest, older = history[-EARLIER_MAX:], history[:-EARLIER_MAX]
    ends = {(e.version, e.stage): e for e in history if e.settlement == "advance"}
    return (*(e for e in older if any(e is end for end in ends.values())), *newest)
