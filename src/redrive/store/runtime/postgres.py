"""PostgreSQL behind the `Store` port: a verb is one function call, its rows become dataclasses, nothing else.

What a verb promises, locks and relies on is said in `sql/verbs/<verb>.sql`. Every call is one round trip in a
transaction of its own; only `settle_one` spans several statements, because the user's `record` runs between them.
Connections come from `Sessions`; they speak UTC.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import fields
from datetime import datetime
from typing import Any, Final, LiteralString, Self
from uuid import UUID

import psycopg
from psycopg import AsyncConnection, sql

from redrive import redact
from redrive.errors import ActRefused, ApproverNeeded, InvalidValue, NotFound, OperatorError
from redrive.message import CancelAnswer, Fence, HistoryEntry, MessageId, WorkerId
from redrive.policy import ClockJump
from redrive.ports import (
    Asked,
    Claimed,
    ClaimRequest,
    ClaimState,
    ClockLook,
    DestinationState,
    HandOver,
    LowWaterMark,
    MendedLanes,
    Opened,
    Outcome,
    Place,
    PutOff,
    Reaped,
    Record,
    RecordFailed,
    RecordWaits,
    Redated,
    RelayInfo,
    RestoredDestination,
    Sent,
    Settled,
    TransientFailure,
    Wal,
    Witnessed,
    address_refused,
    duty_hold_seconds,
)
from redrive.store.reads.models import Proof
from redrive.store.runtime import vacuum, wire
from redrive.store.runtime.limit_keys import LimitKeyVerbs
from redrive.store.runtime.listen_connection import PROBE_CHANNEL
from redrive.store.runtime.sessions import Sessions

ADDRESS_REFUSED = "RDA01"  # SQLSTATE of check_addresses in relay.sql
DEFAULT_TOO_FULL = "RDP01"  # SQLSTATE of make_partitions in partitions.sql
RANGES_AT_ONCE = 60  # more wait for the next time: a clock that was set forward by decades makes no thousands
TABLE_LOCK_TRIES = 40
TABLE_LOCK_PAUSE_SECONDS = 0.25
_TRANSIENT = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.SerializationFailure,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.ReadOnlySqlTransaction,  # a standby, or a maintenance: an outage like any other
    TimeoutError,
)


class PostgresStore(LimitKeyVerbs):
    """One database. Open it with `async with`; it holds at most `connections` connections."""

    def __init__(self, dsn: str, *, connections: int = 8, name: str = "redrive", timeout_seconds: float = 30.0) -> None:
        self._sessions = Sessions(dsn, limit=connections, application_name=name)
        self._timeout_seconds = timeout_seconds

    # Whether `lock_seconds` applies: not where the transaction is that of the caller, who would inherit the setting.
    bounds_locks: bool = True

    # What each transaction of people's reads and acts begins with; see `limited.py`.
    local_settings: Mapping[str, str] = {}
    # When the server last refused to write, by the event loop's clock.
    _refused_at: float | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._sessions.close()

    @asynccontextmanager
    async def connection(self, statement: str = "") -> AsyncIterator[AsyncConnection[Any]]:
        """A connection in autocommit mode, best one that has run this statement before.

        Whatever a retry can mend is raised as `TransientFailure`.
        """
        try:
            async with asyncio.timeout(self._timeout_seconds), self._sessions.session(statement) as conn:
                yield conn
        except _TRANSIENT as error:
            if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
                self._refused_at = asyncio.get_running_loop().time()
            raise TransientFailure(redact.error_type(error)) from error

    async def rows(self, query: LiteralString, values: Sequence[Any] | Mapping[str, Any]) -> list[Any]:
        async with self.connection(query) as conn, conn.cursor(binary=True) as cursor:
            await cursor.execute(query, values)
            return await cursor.fetchall()

    def reading(self) -> AbstractAsyncContextManager[AsyncConnection[Any]]:
        """A connection for a snapshot, which begins its transaction with `local_settings`."""
        return self.connection()

    async def _value(self, query: LiteralString, values: Sequence[Any]) -> Any:
        return (await self.rows(query, values))[0][0]

    def count_leases_from_now(self) -> None:
        """For a relay that begins: whether the server refused to write until now is not known to it."""
        self._refused_at = asyncio.get_running_loop().time()

    # claim, settle, hand back, renew, reap: the life of a message

    async def claim(
        self,
        worker: WorkerId,
        claim_requests: Sequence[ClaimRequest],
        *,
        lease_seconds: float,
        now: datetime | None = None,
    ) -> Claimed:
        destinations, levels, amounts, since = wire.columns(claim_requests, 4)
        rows = await self.rows(
            "SELECT * FROM redrive.claim_1(%s, %s::text[], %s::smallint[], %s::integer[], %s, %s::timestamptz[], %s,"
            " true)",
            [worker, destinations, levels, amounts, lease_seconds, since, now],
        )
        return wire.claimed(await self._readable(worker, rows, lease_seconds), lease_seconds, alone=False)

    async def low_water(
        self, places: Sequence[tuple[Place, datetime | None]], *, now: datetime | None = None
    ) -> Sequence[LowWaterMark]:
        destinations, levels, since = wire.columns([(*place, since) for place, since in places], 3)
        rows = await self.rows(
            "SELECT * FROM redrive.low_water_1(%s::text[], %s::smallint[], %s::timestamptz[], %s)",
            [destinations, levels, since, now],
        )
        return [LowWaterMark(Place(name, level), since, walked) for name, level, since, walked in rows]

    async def claim_suspect(
        self,
        worker: WorkerId,
        destinations: Sequence[str],
        *,
        lease_seconds: float,
        now: datetime | None = None,
    ) -> Claimed:
        rows = await self.rows(
            "SELECT * FROM redrive.claim_suspect_1(%s, %s::text[], %s, %s, true)",
            [worker, wire.array(destinations), lease_seconds, now],
        )
        return wire.claimed(await self._readable(worker, rows, lease_seconds), lease_seconds, alone=True)

    async def _readable(self, worker: WorkerId, rows: list[Any], lease_seconds: float) -> list[Any]:
        """The claimed rows less those that cannot be read, which are parked: no relay could ever send them."""
        unreadable = [row for row in rows if not wire.is_decodable(row)]
        if not unreadable:
            return rows
        with suppress(TransientFailure):  # then their leases run out, and the next claim does it
            await self.settle(worker, [wire.undecodable(row, lease_seconds) for row in unreadable])
        return [row for row in rows if wire.is_decodable(row)]

    async def settle(
        self,
        worker: WorkerId,
        outcomes: Sequence[Outcome],
        *,
        hand_over: HandOver | None = None,
        wait: bool = True,
        now: datetime | None = None,
    ) -> Settled:
        rows: list[Any] = []
        for batch in wire.one_per_message(outcomes):
            for query, values in wire.settle_calls(worker, batch, hand_over, now, wait=wait):
                rows += await self.rows(query, values)
        if hand_over is None:
            return wire.settled(len(outcomes), rows, 0.0)
        handed_over = [row for row in rows if wire.is_handed_over(row)]
        not_settled = [row for row in rows if not wire.is_handed_over(row)]
        readable = await self._readable(worker, handed_over, hand_over.lease_seconds)
        return wire.settled(len(outcomes), not_settled + readable, hand_over.lease_seconds)

    async def settle_one(
        self,
        worker: WorkerId,
        outcome: Outcome,
        record: Record,
        *,
        on_step: Callable[[str], None],
        wait: bool = True,
        lock_seconds: float | None = None,
        now: datetime | None = None,
    ) -> Settled:
        rows: list[Any] = []
        async with self.connection("settle_one") as conn, conn.transaction(), conn.cursor(binary=True) as cursor:
            on_step("fence")
            lock_timeout = _lock_timeout(lock_seconds) if self.bounds_locks else None
            await cursor.execute(_FENCE, [*outcome.attempt.fence, worker, wait, lock_timeout])
            held = await cursor.fetchone()
            assert held is not None
            if held[0] is None:
                return Settled(0, busy=(outcome.attempt.fence,))
            if held[0]:
                on_step("record")
                await _run(record, conn, outcome)
            on_step("settle")
            for query, values in wire.settle_calls(worker, [outcome], None, now):
                await cursor.execute(query, values)
                rows += await cursor.fetchall()
            on_step("commit")
        return wire.settled(1, rows, 0.0)

    async def hand_back(
        self,
        worker: WorkerId,
        fences: Sequence[Fence],
        *,
        suspect: bool = False,
        wait: bool = True,
        put_off: Mapping[Fence, PutOff] | None = None,
        now: datetime | None = None,
    ) -> Sequence[Fence]:
        ids, attempts = wire.columns(dict.fromkeys(fences), 2)
        later = [None if put_off is None else put_off.get(fence) for fence in dict.fromkeys(fences)]
        seconds = [None if one is None else one.seconds for one in later]
        keys = [None if one is None else one.key for one in later]
        rows = await self.rows(
            "SELECT * FROM redrive.hand_back_1(%s, %s::uuid[], %s::integer[], %s, %s, %s, %s::float8[], %s::text[])",
            [worker, ids, attempts, now, wait, suspect, seconds if put_off else None, keys if put_off else None],
        )
        return [Fence(*row) for row in rows]

    async def renew(
        self, worker: WorkerId, fences: Sequence[Fence], *, lease_seconds: float, now: datetime | None = None
    ) -> Sequence[Fence]:
        ids, attempts = wire.columns(fences, 2)
        rows = await self.rows(
            "SELECT * FROM redrive.renew_1(%s, %s::uuid[], %s::integer[], %s, %s)",
            [worker, ids, attempts, lease_seconds, now],
        )
        return [Fence(*row) for row in rows]

    async def check_claims(
        self, worker: WorkerId, fences: Sequence[Fence], *, now: datetime | None = None
    ) -> Sequence[ClaimState]:
        ids, attempts = wire.columns(fences, 2)
        rows = await self.rows(
            "SELECT * FROM redrive.check_claims_1(%s, %s::uuid[], %s::integer[], %s)", [worker, ids, attempts, now]
        )
        return [ClaimState(Fence(id, attempt), *state) for id, attempt, *state in rows]

    async def leases_of(self, worker: WorkerId) -> Sequence[Fence]:
        return [Fence(*row) for row in await self.rows("SELECT * FROM redrive.leases_1(%s)", [worker])]

    async def is_leased(self, fence: Fence) -> bool:
        return bool(await self._value("SELECT redrive.is_leased_1(%s, %s)", list(fence)))

    async def reap(
        self,
        *,
        limit: int,
        worker: WorkerId | None = None,
        expected: datetime | None = None,
        now: datetime | None = None,
    ) -> Reaped:
        """No relay can renew while the server refuses writes: leases then count from the last refusal."""
        since = self._refused_at
        ago = None if since is None else asyncio.get_running_loop().time() - since
        values = [limit, worker, now, ago, expected]
        requeued = await self._value("SELECT redrive.reap_1(%s, %s, %s, %s, %s)", values)
        return Reaped(0, unconfirmed=True) if requeued is None else Reaped(requeued)

    async def observe_clock(
        self, worker: WorkerId, *, steady: tuple[datetime, datetime] | None = None, now: datetime | None = None
    ) -> ClockLook:
        since, until = steady or (None, None)
        values = [worker, since, until, now]
        ((at, era, unfinished, ahead, noticed, offsets),) = await self.rows(
            "SELECT * FROM redrive.observe_clock_1(%s, %s, %s, %s)", values
        )
        jumps = tuple(ClockJump(*jump) for jump in zip(noticed or (), offsets or (), strict=True))
        return ClockLook(at, era, unfinished, ahead, jumps)

    async def clock_jumped(
        self,
        worker: WorkerId,
        *,
        era: int,
        offset_seconds: float,
        window_seconds: float | None,
        now: datetime | None = None,
    ) -> int:
        values = [worker, era, offset_seconds, window_seconds, now]
        return int(await self._value("SELECT redrive.clock_jumped_1(%s, %s, %s, %s, %s)", values))

    async def redate(
        self, era: int, *, after: MessageId | None, limit: int, end: bool = False, now: datetime | None = None
    ) -> Redated:
        values = [era, after, limit, end, now]
        return Redated(*(await self.rows("SELECT * FROM redrive.redate_1(%s, %s, %s, %s, %s)", values))[0])

    async def expire(self, *, limit: int, now: datetime | None = None) -> int:
        return int(await self._value("SELECT redrive.expire_1(%s, %s)", [limit, now]))

    async def fold_failures(self, *, limit: int, now: datetime | None = None) -> int:
        return int(await self._value("SELECT redrive.fold_failures_1(%s, %s)", [limit, now]))

    async def run_replay(self, *, every_seconds: float, limit: int, now: datetime | None = None) -> int | None:
        count: int | None = await self._value("SELECT redrive.run_replay_1(%s, %s, %s)", [every_seconds, limit, now])
        return count

    async def take_requests(
        self,
        worker: WorkerId,
        destinations: Sequence[str],
        *,
        limit: int,
        hold_seconds: float,
        now: datetime | None = None,
    ) -> Sequence[Asked]:
        values = [worker, list(destinations), limit, hold_seconds, now]
        rows = await self.rows("SELECT * FROM redrive.take_requests_1(%s, %s::text[], %s, %s, %s, true)", values)
        return [Asked(row[0], wire.attempt(row[1:], hold_seconds, alone=False)) for row in rows]

    async def answer_request(
        self, worker: WorkerId, id: int, answer: Mapping[str, Any], *, now: datetime | None = None
    ) -> bool:
        values = [id, worker, json.dumps(dict(answer)), now]
        return bool(await self._value("SELECT redrive.answer_request_1(%s, %s, %s::json, %s)", values))

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
            require_actor_and_reason(actor, reason or "")
        answer = await self._value("SELECT redrive.cancel_1(%s, %s, %s, %s)", [id, actor, reason, now])
        if answer == "not_found":
            raise _no_such_message(id)
        await self._refuse(answer, "cancel", id, actor or "")
        return CancelAnswer(answer)

    async def requeue(
        self,
        id: MessageId,
        *,
        actor: str,
        reason: str,
        stage: str | None = None,
        out_of_order: bool = False,
        now: datetime | None = None,
    ) -> None:
        values = [actor, reason, stage, out_of_order, now]
        await self._act("SELECT redrive.requeue_1(%s, %s, %s, %s, %s, %s)", "requeue", id, values)

    async def skip(
        self,
        tenant: str,
        order_by: str,
        *,
        actor: str,
        reason: str,
        sequence: int | None = None,
        now: datetime | None = None,
    ) -> None:
        require_actor_and_reason(actor, reason)
        values = [tenant, order_by, actor, reason, sequence, now]
        answer = await self._value("SELECT redrive.skip_1(%s, %s, %s, %s, %s, %s)", values)
        if answer == "not_found":
            raise NotFound(f"There is no ordering key {order_by!r} of tenant {tenant!r}.", next="redrive keys list")
        if answer in NOT_ALONE:
            head = await self._value(_HEAD, [tenant, order_by])
            await self._refuse(answer, "skip", head, actor)
        if answer != "done":
            raise ActRefused(f"Ordering key {order_by!r}: {_WHY_NOT_SKIPPED[answer]}", next="redrive keys list")

    async def mend_lanes(self, *, lanes: int, now: datetime | None = None) -> MendedLanes:
        rows = await self.rows("SELECT mended, looked_at, is_over FROM redrive.mend_lanes_1(%s, %s)", [lanes, now])
        return MendedLanes(*rows[0])

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
        require_actor_and_reason(values[0], values[1])
        answer = await self._value(query, [id, *values])
        if answer == "not_found":
            raise _no_such_message(id)
        await self._refuse(answer, verb, id, values[0])
        if answer == "moved_on":
            raise ActRefused(
                f"Message {id}: later messages of its ordering key went out without it.",
                next="the same with --out-of-order, if it may go before all that still wait",
            )
        if answer == "one_stage":
            raise ActRefused(
                f"Message {id}: its destination moves money, and a payment has one stage; another has another token.",
                next="the same without --stage",
            )
        if answer != "done":
            raise ActRefused(f"Message {id} is {answer}; {verb} does not apply.", next=_WHAT_APPLIES.get(answer, ""))

    async def _refuse(self, answer: str, verb: str, id: MessageId, actor: str) -> None:
        """Raises the refusal of an act that needs a second person, or that evidence forbids."""
        if answer in NOT_ALONE:
            raise not_alone(answer, verb, id, actor, proofs=await self.evidence(id) if answer == "evidence" else ())

    async def evidence(self, id: MessageId) -> Sequence[Proof]:
        """What says that a message was delivered although its claim says otherwise, the earliest first."""
        return [Proof(*row) for row in await self.rows(_EVIDENCE, [id])]

    async def pause(self, destination: str, *, actor: str, reason: str, now: datetime | None = None) -> bool:
        require_actor_and_reason(actor, reason)
        return bool(await self._value("SELECT redrive.pause_1(%s, %s, %s, %s)", [destination, actor, reason, now]))

    async def resume(self, destination: str, *, actor: str, reason: str, now: datetime | None = None) -> bool:
        require_actor_and_reason(actor, reason)
        answer = await self._value("SELECT redrive.resume_1(%s, %s, %s, %s)", [destination, actor, reason, now])
        if answer == "second_person":
            raise ActRefused(
                f"Destination {destination} stands still because its database was restored or promoted; the resume is"
                " noted, and a second person has to ask too.",
                next=f"the same command by another --actor, an approver, within a day ({actor} has asked)",
            )
        if answer == "approver":
            raise ApproverNeeded(
                f"Destination {destination}: another person has asked to resume it; to be the second takes the role"
                " approver.",
                next="the same by an approver: a login with the role redrive_approver",
            )
        if answer not in ("done", "not_paused"):
            raise ActRefused(f"Destination {destination} is not resumed: {answer}.")
        return bool(answer == "done")

    # epochs, and what relays remember of the money that they sent

    async def declare_restored(
        self, *, actor: str, reason: str, dry_run: bool = False, now: datetime | None = None
    ) -> Sequence[RestoredDestination]:
        """This database was restored, copied or promoted: pause what moves money, and put what waits there in doubt."""
        require_actor_and_reason(actor, reason)
        rows = await self.rows(
            "SELECT * FROM redrive.declare_restored_1(%s, %s, %s, %s)", [actor, reason, dry_run, now]
        )
        return [RestoredDestination(*row) for row in rows]

    @property
    def connections_made(self) -> int:
        """So far; each may lead to another database than the one before."""
        return self._sessions.made

    async def database_id(self) -> UUID:
        """The same in every copy and backup of it."""
        id: UUID = await self._value("SELECT redrive.database_id_1()", [])
        return id

    async def witness(
        self,
        worker: WorkerId,
        *,
        kept: str,
        remembers: bool,
        sent: Sequence[Sent],
        wal: Wal | None,
        now: datetime | None = None,
    ) -> Witnessed:
        """Whether it knows what a relay remembers; if not, an epoch begins."""
        ids, attempts, moments = wire.columns([(one.id, one.attempt, one.at) for one in sent], 3)
        seen = (None, None, None) if wal is None else (wal.system_identifier, wal.lsn, wal.at)
        (row,) = await self.rows(
            "SELECT * FROM redrive.witness_1(%s, %s, %s, %s::uuid[], %s::integer[], %s::timestamptz[], %s, %s, %s, %s)",
            [worker, kept, remembers, ids, attempts, moments, *seen, now],
        )
        restored, unknown, system_identifier, lsn, at, closed = row
        return Witnessed(restored, unknown, Wal(system_identifier, lsn, at), closed)

    # what holds a destination back

    async def pause_until(
        self, destination: str, *, actor: str, seconds: float, now: datetime | None = None
    ) -> float | None:
        values = [destination, actor, seconds, now]
        left: float | None = await self._value("SELECT redrive.pause_until_1(%s, %s, %s, %s)", values)
        return left

    async def open_breaker(
        self,
        destination: str,
        *,
        claimed_at: datetime,
        code: str,
        cool_off_seconds: float,
        cool_off_max_seconds: float,
        now: datetime | None = None,
    ) -> Opened:
        rows = await self.rows(
            "SELECT * FROM redrive.open_breaker_1(%s, %s, %s, %s, %s, %s)",
            [destination, claimed_at, code, cool_off_seconds, cool_off_max_seconds, now],
        )
        return Opened(*rows[0])

    async def close_breaker(self, destination: str, *, claimed_at: datetime, now: datetime | None = None) -> bool:
        return bool(await self._value("SELECT redrive.close_breaker_1(%s, %s, %s)", [destination, claimed_at, now]))

    async def half_open(self, destination: str, *, actor: str, reason: str, now: datetime | None = None) -> str:
        """An operator's test; the words of its answer are in `breaker.sql`."""
        require_actor_and_reason(actor, reason)
        return str(await self._value("SELECT redrive.half_open_1(%s, %s, %s, %s)", [destination, actor, reason, now]))

    # relays and duties

    async def register(self, relay: RelayInfo, *, now: datetime | None = None) -> None:
        values = [
            relay.worker,
            relay.name,
            relay.host,
            relay.pid,
            relay.version,
            json.dumps([wire.declared(relay, name) for name in relay.destinations]),
            json.dumps(dict(relay.policies)),
            relay.suspects_only,
            now,
        ]
        try:
            await self.rows("SELECT redrive.register_1(%s, %s, %s, %s, %s, %s::json, %s::json, %s, %s)", values)
        except psycopg.Error as error:
            if error.sqlstate != ADDRESS_REFUSED:
                raise
            raise address_refused(error.diag.message_primary or "", error.diag.message_detail or "") from None

    async def heartbeat(
        self, worker: WorkerId, *, listener: str = "off", now: datetime | None = None
    ) -> Sequence[DestinationState]:
        rows = await self.rows("SELECT * FROM redrive.heartbeat_1(%s, %s, %s)", [worker, listener, now])
        return [DestinationState(**dict(zip(_HEARD, row, strict=True))) for row in rows]

    async def deregister(self, worker: WorkerId) -> None:
        await self.rows("SELECT redrive.deregister_1(%s)", [worker])

    async def announce_idle(
        self, worker: WorkerId, destinations: Sequence[str], *, seconds: float, now: datetime | None = None
    ) -> None:
        await self.rows(
            "SELECT redrive.announce_idle_1(%s, %s::text[], %s, %s)", [worker, wire.array(destinations), seconds, now]
        )

    async def probe(self, worker: WorkerId) -> None:
        await self.rows("SELECT pg_notify(%s, %s)", [PROBE_CHANNEL, str(worker)])

    async def forget_relays(self, *, after_seconds: float, now: datetime | None = None) -> int:
        return int(await self._value("SELECT redrive.forget_relays_1(%s, %s)", [after_seconds, now]))

    async def begin_duty(
        self, name: str, worker: WorkerId, *, every_seconds: float, now: datetime | None = None
    ) -> bool:
        values = [name, worker, every_seconds, duty_hold_seconds(every_seconds), now]
        return bool(await self._value("SELECT redrive.begin_duty_1(%s, %s, %s, %s, %s)", values))

    async def end_duty(self, name: str, worker: WorkerId, *, result: str, now: datetime | None = None) -> None:
        await self.rows("SELECT redrive.end_duty_1(%s, %s, %s, %s)", [name, worker, result, now])

    async def suspect_destinations(
        self, destinations: Sequence[str], *, after: str = "", limit: int = 100, now: datetime | None = None
    ) -> Sequence[str]:
        found: list[str] = await self._value(
            "SELECT redrive.suspect_destinations_1(%s::text[], %s, %s, %s)",
            [wire.array(destinations), after, limit, now],
        )
        return found

    async def vacuum(self) -> str:
        looks = await self.rows(vacuum.LOOK, [vacuum.IN_VAIN_SECONDS, vacuum.OLD_SECONDS, vacuum.OLD_TRANSACTIONS])
        choice = vacuum.choose([vacuum.Look(*row) for row in looks])
        for table in choice.tables:
            async with self.connection() as conn:
                await conn.execute(sql.SQL(vacuum.VACUUM).format(sql.Identifier(table)), prepare=False)
        return choice.words

    async def make_partitions(self, *, width_seconds: float, ahead: int, now: datetime | None = None) -> int:
        """In pieces: a call ends after a range into which rows of the default partitions had to be moved."""
        made = 0
        try:
            while made < RANGES_AT_ONCE and (
                piece := await self._with_table_locks(
                    "SELECT redrive.make_partitions_1(%s, %s, %s)", [width_seconds, ahead, now]
                )
            ):
                made += piece
        except psycopg.Error as error:
            if error.sqlstate != DEFAULT_TOO_FULL:
                raise
            raise OperatorError(
                error.diag.message_primary or "",
                next="redrive doctor, which says how they are moved; until then they are delivered from there",
            ) from None
        return made

    async def ranges(self) -> Sequence[tuple[datetime, datetime]]:
        return [(row[0], row[1]) for row in await self.rows("SELECT * FROM redrive.ranges_1()", [])]

    async def retire(self, starts_at: datetime, *, now: datetime | None = None) -> str:
        return str(await self._with_table_locks("SELECT redrive.retire_1(%s, %s)", [starts_at, now]))

    async def _with_table_locks(self, query: LiteralString, values: Sequence[Any]) -> Any:
        """A verb that locks whole tables, and gives up at once beside a reader of them: all others would wait behind
        it. So it is called again and again, for a while."""
        for _ in range(TABLE_LOCK_TRIES):
            try:
                return await self._value(query, values)
            except TransientFailure as failure:
                if not isinstance(failure.__cause__, psycopg.errors.LockNotAvailable):
                    raise
            await asyncio.sleep(TABLE_LOCK_PAUSE_SECONDS)
        raise OperatorError(
            "Another transaction reads the tables message, body or attempt, so that they could not be locked.",
            next="end it, if it is none that you need (pg_stat_activity has it); the duty tries again within the hour",
        )

    async def now(self) -> datetime:
        moment: datetime = await self._value("SELECT clock_timestamp()", [])
        return moment

    async def history(self, id: MessageId) -> Sequence[HistoryEntry]:
        rows = await self.rows(_HISTORY, [id])
        return [HistoryEntry(*row) for row in rows]


# The setting comes second: the fence waits as long as it takes, what `record` does waits as long as it may.
_FENCE: LiteralString = (
    "SELECT redrive.fence_1(%s, %s, %s, %s),"
    " set_config('lock_timeout', coalesce(%s, current_setting('lock_timeout')), true)"
)
_HEARD = tuple(field.name for field in fields(DestinationState))  # the columns of heartbeat
_HISTORY: LiteralString = (
    "SELECT attempt, verb, stage, version, settlement, answer, code, text, reference, result, closed, worker, actor,"
    " reason, claimed_at, completed_at, latency_ms, spent, due_at"
    " FROM redrive.attempt WHERE message_id = %s ORDER BY completed_at, attempt"
)
_EVIDENCE: LiteralString = (
    "SELECT kind, subject, reference, at FROM redrive.evidence WHERE message_id = %s ORDER BY at, kind, subject"
)
_HEAD: LiteralString = (
    "SELECT h.id FROM redrive.stream s CROSS JOIN LATERAL redrive.lane_head(s.id, clock_timestamp()) h"
    " WHERE s.tenant = %s AND s.order_by = %s"
)
NOT_ALONE: Final = frozenset({"evidence", "second_person", "approver"})
_WHY_NOT_SKIPPED: Mapping[str, str] = {
    "in_flight": "its head is being sent just now; it cannot be skipped before it comes back.",
    "moved_on": "its head is another one by now; nothing was skipped.",
    "empty": "nothing of it waits.",
}
_WHAT_APPLIES: Mapping[str, str] = {
    "held": "redrive held confirm | deny | discard",
    "unrecorded": "redrive unrecorded repair",
    "dead": "redrive messages requeue, or discard",
}


async def _run(record: Record, conn: AsyncConnection[Any], outcome: Outcome) -> None:
    """User code inside our transaction. Deadlock, serialisation, a lost connection are run again (ruling 16)."""
    try:
        await record(conn, outcome.attempt, outcome.settlement)
        if conn.info.transaction_status is not psycopg.pq.TransactionStatus.INTRANS:
            raise RuntimeError("record left the transaction aborted or ended it; it must do neither.")
    except BaseException as error:  # a record may raise SystemExit too; it must not take the relay along
        if _is_ours_to_retry(error, conn):
            raise
        if _waited_for_a_lock(error):
            raise RecordWaits(redact.error_type(error)) from error
        raise RecordFailed(redact.error_type(error)) from error


def _is_ours_to_retry(error: BaseException, conn: AsyncConnection[Any]) -> bool:
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return conn.closed or isinstance(error, psycopg.errors.SerializationFailure | psycopg.errors.DeadlockDetected)


def _waited_for_a_lock(error: BaseException | None) -> bool:
    """Whether this, or what it was raised from (an ORM wraps errors of the driver), is a lock that did not come."""
    while error is not None:
        if isinstance(error, psycopg.errors.LockNotAvailable):
            return True
        error = error.__cause__
    return False


def _lock_timeout(seconds: float | None) -> str | None:
    return None if seconds is None else f"{max(1, int(1000 * seconds))}ms"


def require_actor_and_reason(actor: str, reason: str) -> None:
    if not actor.strip() or not reason.strip():
        raise InvalidValue(f"An act needs an actor and a reason; actor is {actor!r}, reason is {reason!r}.")


def not_alone(answer: str, verb: str, id: MessageId, actor: str, *, proofs: Sequence[Proof] = ()) -> ActRefused:
    """Why an act is not done: there is evidence against it, or a second person has to ask for it."""
    match answer:
        case "second_person":
            return ActRefused(
                f"Message {id}: its destination moves money; {verb} is noted, and a second person has to ask too.",
                next=f"the same command by another --actor, an approver, within a day ({actor} has asked)",
            )
        case "approver":
            return ApproverNeeded(
                f"Message {id}: another person has asked for {verb}; to be the second takes the role approver.",
                next="the same by an approver: a login with the role redrive_approver",
            )
        case _:
            told = str(proofs[0]) if proofs else "evidence"
            reference = next((proof.reference for proof in proofs if proof.reference), "…")
            return ActRefused(
                f"Message {id}: something says that it was delivered ({told}); {verb} is refused.",
                next=f"redrive held confirm {id} --reference {reference}",
            )


def _no_such_message(id: MessageId) -> NotFound:
    return NotFound(f"There is no message {id}.", next="redrive messages list")
