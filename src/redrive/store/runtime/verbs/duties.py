"""Duties in PostgreSQL: reap, expire, retire and the rest of what relays do in turn."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from redrive.errors import OperatorError
from redrive.message import WorkerId
from redrive.ports import Asked, DutyVerbs, MendedLanes, Now, Reaped, TransientFailure, duty_hold_seconds
from redrive.store.runtime import vacuum, wire
from redrive.store.runtime.verbs import from_port
from redrive.store.runtime.verbs.connected import Connected

DEFAULT_TOO_FULL = "RDP01"  # SQLSTATE of make_partitions in partitions.sql
RANGES_AT_ONCE = 60  # more wait for the next time: a clock that was set forward by decades makes no thousands
TABLE_LOCK_TRIES = 40
TABLE_LOCK_PAUSE_SECONDS = 0.25


class PostgresDuties(Connected):
    """`redrive.ports.DutyVerbs`."""

    async def begin_duty(self, name: str, worker: WorkerId, *, every_seconds: float, now: Now = None) -> bool:
        hold_seconds = duty_hold_seconds(every_seconds)
        return bool(await self.value("begin_duty_1", name, worker, every_seconds, hold_seconds, now))

    end_duty = from_port.value(DutyVerbs.end_duty)

    async def reap(
        self, *, limit: int, worker: WorkerId | None = None, expected: datetime | None = None, now: Now = None
    ) -> Reaped:
        """While the server refuses writes no relay can renew: leases then count from the last refusal."""
        since = self._refused_at
        ago = None if since is None else asyncio.get_running_loop().time() - since
        requeued = await self.value("reap_1", limit, worker, now, ago, expected)
        return Reaped(0, unconfirmed=True) if requeued is None else Reaped(requeued)

    expire = from_port.value(DutyVerbs.expire)
    forget_inbox = from_port.value(DutyVerbs.forget_inbox)
    fold_failures = from_port.value(DutyVerbs.fold_failures)
    run_replay = from_port.value(DutyVerbs.run_replay)

    async def take_requests(
        self, worker: WorkerId, destinations: Sequence[str], *, limit: int, hold_seconds: float, now: Now = None
    ) -> Sequence[Asked]:
        rows = await self.call("take_requests_1", worker, wire.array(destinations), limit, hold_seconds, now, True)
        return [wire.asked(row, hold_seconds) for row in rows]

    async def answer_request(self, worker: WorkerId, id: int, answer: Mapping[str, Any], *, now: Now = None) -> bool:
        return bool(await self.value("answer_request_1", id, worker, json.dumps(dict(answer)), now))

    mend_lanes = from_port.row(DutyVerbs.mend_lanes, MendedLanes)

    async def vacuum(self) -> str:
        looks = await self.rows(vacuum.LOOK, [vacuum.IN_VAIN_SECONDS, vacuum.OLD_SECONDS, vacuum.OLD_TRANSACTIONS])
        choice = vacuum.choose(wire.objects(vacuum.Look, looks))
        for table in choice.tables:
            async with self.connection() as conn:
                await conn.execute(sql.SQL(vacuum.VACUUM).format(sql.Identifier(table)), prepare=False)
        return choice.words

    async def make_partitions(self, *, width_seconds: float, ahead: int, now: Now = None) -> int:
        """In pieces: a call ends after a range into which rows of the default partitions had to be moved."""
        made = 0
        try:
            while made < RANGES_AT_ONCE and (
                piece := await self._with_table_locks("make_partitions_1", width_seconds, ahead, now)
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
        return [(row.starts_at, row.ends_at) for row in await self.call("ranges_1")]

    async def retire(self, starts_at: datetime, *, now: Now = None) -> str:
        return str(await self._with_table_locks("retire_1", starts_at, now))

    async def _with_table_locks(self, function: LiteralString, *values: Any) -> Any:
        """Retries a verb that locks whole tables: it gives up at once beside a reader, lest others wait for it."""
        for _ in range(TABLE_LOCK_TRIES):
            try:
                return await self.value(function, *values)
            except TransientFailure as failure:
                if not isinstance(failure.__cause__, psycopg.errors.LockNotAvailable):
                    raise
            await asyncio.sleep(TABLE_LOCK_PAUSE_SECONDS)
        raise OperatorError(
            "Another transaction reads the tables message, body or attempt, so that they could not be locked.",
            next="end it, if it is none that you need (pg_stat_activity has it); the duty tries again within the hour",
        )
