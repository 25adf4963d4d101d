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
        return wire.objects(LimitKeyState, await self.call("limit_keys_1", wire.array(destinations), limit, now))

    async def pause_key(self, destination: str, key: str, *, actor: str, reason: str, now: Now = None) -> bool:
        require_actor_and_reason(actor, reason)
        return bool(await self.value("pause_key_1", destination, key, actor, reason, now))

    async def resume_key(self, destination: str, key: str, *, actor: str, reason: str, now: Now = None) -> bool:
        require_actor_and_reason(actor, reason)
        return bool(await self.value("resume_key_1", destination, key, actor, reason, now))

    async def rest_key(
        self, destination: str, key: str, *, actor: str, seconds: float, now: Now = None
    ) -> float | None:
        left: float | None = await self.value("rest_key_1", destination, key, actor, seconds, now)
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
        values = (destination, key, claimed_at, code, cool_off_seconds, cool_off_max_seconds, now)
        rows = await self.call("open_key_1", *values)
        return wire.objects(Opened, rows)[0]

    async def probe_key(self, destination: str, key: str, id: MessageId, *, now: Now = None) -> str:
        return str(await self.value("probe_key_1", destination, key, id, now))

    async def close_key(self, destination: str, key: str, *, claimed_at: datetime, now: Now = None) -> bool:
        return bool(await self.value("close_key_1", destination, key, claimed_at, now))

    async def book_key(
        self, destination: str, key: str, *, count: int, rate: float, most_seconds: float, now: Now = None
    ) -> Booked:
        (row,) = await self.call("book_key_1", destination, key, count, rate, most_seconds, now)
        return Booked(row.seconds, row.booked)
