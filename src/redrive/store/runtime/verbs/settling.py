"""Settle in PostgreSQL: many outcomes at once, or one with the user's `record` in the same transaction."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, LiteralString

import psycopg
from psycopg import AsyncConnection, AsyncCursor
from psycopg.rows import namedtuple_row

from redrive import redact
from redrive.message import WorkerId
from redrive.ports import HandOver, Now, Outcome, Record, RecordFailed, RecordWaits, Settled, TransientFailure
from redrive.store.runtime import wire
from redrive.store.runtime.verbs.connected import Connected

# The setting comes second: the fence waits as long as it takes, what `record` does waits as long as it may.
_FENCE: LiteralString = (
    "SELECT redrive.fence_1(%s, %s, %s, %s) AS is_held,"
    " set_config('lock_timeout', coalesce(%s, current_setting('lock_timeout')), true)"
)


class PostgresSettling(Connected):
    """`redrive.ports.SettleVerbs`."""

    async def settle(
        self,
        worker: WorkerId,
        outcomes: Sequence[Outcome],
        *,
        hand_over: HandOver | None = None,
        wait: bool = True,
        now: Now = None,
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
        now: Now = None,
    ) -> Settled:
        rows: list[Any] = []
        async with self.connection("settle_one") as conn, conn.transaction():
            cursor: AsyncCursor[Any] = conn.cursor(binary=True, row_factory=namedtuple_row)
            on_step("fence")
            lock_timeout = _lock_timeout(lock_seconds) if self.bounds_locks else None
            await cursor.execute(_FENCE, [*outcome.attempt.fence, worker, wait, lock_timeout])
            is_held: bool | None = (await cursor.fetchall())[0].is_held
            if is_held is None:
                return Settled(0, busy=(outcome.attempt.fence,))
            if is_held:
                on_step("record")
                await _run(record, conn, outcome)
            on_step("settle")
            for query, values in wire.settle_calls(worker, [outcome], None, now):
                await cursor.execute(query, values)
                rows += await cursor.fetchall()
            on_step("commit")
        return wire.settled(1, rows, 0.0)

    async def _readable(self, worker: WorkerId, rows: list[Any], lease_seconds: float) -> list[Any]:
        """Parks the claimed rows that cannot be read, which no relay could send, and returns the others."""
        unreadable = [row for row in rows if not wire.is_decodable(row)]
        if not unreadable:
            return rows
        with suppress(TransientFailure):  # then their leases run out, and the next claim does it
            await self.settle(worker, [wire.undecodable(row, lease_seconds) for row in unreadable])
        return [row for row in rows if wire.is_decodable(row)]


async def _run(record: Record, conn: AsyncConnection[Any], outcome: Outcome) -> None:
    """User code inside our transaction."""
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
    """Also where an ORM wraps the driver's error."""
    while error is not None:
        if isinstance(error, psycopg.errors.LockNotAvailable):
            return True
        error = error.__cause__
    return False


def _lock_timeout(seconds: float | None) -> str | None:
    return None if seconds is None else f"{max(1, int(1000 * seconds))}ms"
