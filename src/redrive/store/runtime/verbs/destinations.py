"""Pauses and circuit breakers of destinations in PostgreSQL."""

from __future__ import annotations

from datetime import datetime

from redrive.errors import ActRefused, ApproverNeeded
from redrive.ports import Now, Opened
from redrive.store.runtime import wire
from redrive.store.runtime.verbs.connected import Connected
from redrive.who import require_actor_and_reason


class PostgresDestinations(Connected):
    """`redrive.ports.DestinationVerbs`, but for those of limit keys."""

    async def pause(self, destination: str, *, actor: str, reason: str, now: Now = None) -> bool:
        require_actor_and_reason(actor, reason)
        return bool(await self.value("pause_1", destination, actor, reason, now))

    async def resume(self, destination: str, *, actor: str, reason: str, now: Now = None) -> bool:
        require_actor_and_reason(actor, reason)
        answer = await self.value("resume_1", destination, actor, reason, now)
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

    async def pause_until(self, destination: str, *, actor: str, seconds: float, now: Now = None) -> float | None:
        left: float | None = await self.value("pause_until_1", destination, actor, seconds, now)
        return left

    async def open_breaker(
        self,
        destination: str,
        *,
        claimed_at: datetime,
        code: str,
        cool_off_seconds: float,
        cool_off_max_seconds: float,
        now: Now = None,
    ) -> Opened:
        values = (destination, claimed_at, code, cool_off_seconds, cool_off_max_seconds, now)
        rows = await self.call("open_breaker_1", *values)
        return wire.objects(Opened, rows)[0]

    async def close_breaker(self, destination: str, *, claimed_at: datetime, now: Now = None) -> bool:
        return bool(await self.value("close_breaker_1", destination, claimed_at, now))

    async def half_open(self, destination: str, *, actor: str, reason: str, now: Now = None) -> str:
        """An operator's test; `breaker.sql` explains its answers."""
        require_actor_and_reason(actor, reason)
        return str(await self.value("half_open_1", destination, actor, reason, now))
