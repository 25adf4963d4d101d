"""Limit keys in PostgreSQL: parts of a destination with a pause, a breaker and a rate of their own (G-31)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from redrive.message import MessageId
from redrive.ports import Booked, LimitKeyState, Now, Opened
from redrive.store.runtime import wire
from redrive.store.runtime.verbs.connected import Connected
from redrive.who import require_actor_and_reason


class PostgresLimitKeys(Connected):
    """The verbs of limit keys of `redrive.ports.DestinationVerbs`."""

    async def limit_keys(self, destinations: Sequence[str], *, limit: int, now: Now = None) -> Sequence[LimitKeyState]:
        rows = await self.rows(
            "SELECT * FROM redrive.limit_keys_1(%s::text[], %s, %s)", [wire.array(destinations), limit, now]
        )
        return wire.objects(LimitKeyState, rows)

    async def pause_key(self, destination: str, key: str, *, actor: str, reason: str, now: Now = None) -> bool:
        require_actor_and_reason(actor, reason)
        values = [destination, key, actor, reason, now]
        return bool(await self._value("SELECT redrive.pause_key_1(%s, %s, %s, %s, %s)", values))

    async def resume_key(self, destination: str, key: str, *, actor: str, reason: str, now: Now = None) -> bool:
        require_actor_and_reason(actor, reason)
        values = [destination, key, actor, reason, now]
        return bool(await self._value("SELECT redrive.resume_key_1(%s, %s, %s, %s, %s)", values))

    async def rest_key(
        self, destination: str, key: str, *, actor: str, seconds: float, now: Now = None
    ) -> float | None:
        values = [destination, key, actor, seconds, now]
        left: float | None = await self._value("SELECT redrive.rest_key_1(%s, %s, %s, %s, %s)", values)
        return left

    async def open_key(
        self,
        destination: str,
        key: str,
        *,
        claimed_at: datetime,
        code: str,
        cool_off_seconds: float,
        cool_off_max_seconds: float,
        now: Now = None,
    ) -> Opened:
        rows = await self.rows(
            "SELECT * FROM redrive.open_key_1(%s, %s, %s, %s, %s, %s, %s)",
            [destination, key, claimed_at, code, cool_off_seconds, cool_off_max_seconds, now],
        )
        return wire.objects(Opened, rows)[0]

    async def probe_key(self, destination: str, key: str, id: MessageId, *, now: Now = None) -> str:
        return str(await self._value("SELECT redrive.probe_key_1(%s, %s, %s, %s)", [destination, key, id, now]))

    async def close_key(self, destination: str, key: str, *, claimed_at: datetime, now: Now = None) -> bool:
        values = [destination, key, claimed_at, now]
        return bool(await self._value("SELECT redrive.close_key_1(%s, %s, %s, %s)", values))

    async def book_key(
        self, destination: str, key: str, *, count: int, rate: float, most_seconds: float, now: Now = None
    ) -> Booked:
        rows = await self.rows(
            "SELECT * FROM redrive.book_key_1(%s, %s, %s, %s, %s, %s)",
            [destination, key, count, rate, most_seconds, now],
        )
        return Booked(rows[0].seconds, rows[0].booked)
