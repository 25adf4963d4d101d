"""The verbs of limit keys in PostgreSQL: a part of a destination that is limited by itself (G-31).

Half of `PostgresStore`; what each verb promises and locks is said in `sql/verbs/limit_keys.sql`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any, Final, LiteralString

from redrive.errors import InvalidValue
from redrive.message import MessageId
from redrive.ports import Booked, LimitKeyState, Opened
from redrive.store.runtime import wire

_STATE: Final = tuple(f.name for f in fields(LimitKeyState))


class LimitKeyVerbs(ABC):
    """A part of a store, which runs their statements."""

    @abstractmethod
    async def rows(self, query: LiteralString, values: Any) -> list[Any]: ...

    async def limit_keys(
        self, destinations: Sequence[str], *, limit: int, now: datetime | None = None
    ) -> Sequence[LimitKeyState]:
        rows = await self.rows(
            "SELECT * FROM redrive.limit_keys_1(%s::text[], %s, %s)", [wire.array(destinations), limit, now]
        )
        return [LimitKeyState(**dict(zip(_STATE, row, strict=True))) for row in rows]

    async def pause_key(
        self, destination: str, key: str, *, actor: str, reason: str, now: datetime | None = None
    ) -> bool:
        values = [destination, key, *_named(actor, reason), now]
        return bool((await self.rows("SELECT redrive.pause_key_1(%s, %s, %s, %s, %s)", values))[0][0])

    async def resume_key(
        self, destination: str, key: str, *, actor: str, reason: str, now: datetime | None = None
    ) -> bool:
        values = [destination, key, *_named(actor, reason), now]
        return bool((await self.rows("SELECT redrive.resume_key_1(%s, %s, %s, %s, %s)", values))[0][0])

    async def rest_key(
        self, destination: str, key: str, *, actor: str, seconds: float, now: datetime | None = None
    ) -> float | None:
        values = [destination, key, actor, seconds, now]
        left: float | None = (await self.rows("SELECT redrive.rest_key_1(%s, %s, %s, %s, %s)", values))[0][0]
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
        now: datetime | None = None,
    ) -> Opened:
        rows = await self.rows(
            "SELECT * FROM redrive.open_key_1(%s, %s, %s, %s, %s, %s, %s)",
            [destination, key, claimed_at, code, cool_off_seconds, cool_off_max_seconds, now],
        )
        return Opened(*rows[0])

    async def probe_key(self, destination: str, key: str, id: MessageId, *, now: datetime | None = None) -> str:
        rows = await self.rows("SELECT redrive.probe_key_1(%s, %s, %s, %s)", [destination, key, id, now])
        return str(rows[0][0])

    async def close_key(self, destination: str, key: str, *, claimed_at: datetime, now: datetime | None = None) -> bool:
        rows = await self.rows("SELECT redrive.close_key_1(%s, %s, %s, %s)", [destination, key, claimed_at, now])
        return bool(rows[0][0])

    async def book_key(
        self,
        destination: str,
        key: str,
        *,
        count: int,
        rate: float,
        most_seconds: float,
        now: datetime | None = None,
    ) -> Booked:
        rows = await self.rows(
            "SELECT * FROM redrive.book_key_1(%s, %s, %s, %s, %s, %s)",
            [destination, key, count, rate, most_seconds, now],
        )
        return Booked(*rows[0])


def _named(actor: str, reason: str) -> tuple[str, str]:
    if not (actor.strip() and reason.strip()):
        raise InvalidValue("Both an actor and a reason are needed.")
    return actor, reason
