"""Pauses and circuit breakers of destinations in PostgreSQL."""

from redrive.errors import ActRefused, ApproverNeeded
from redrive.ports import DestinationVerbs, Now, Opened
from redrive.store.runtime.verbs import from_port
from redrive.store.runtime.verbs.connected import Connected
from redrive.who import require_actor_and_reason


class PostgresDestinations(Connected):
    """`redrive.ports.DestinationVerbs`, but for those of limit keys."""

    pause = from_port.value(DestinationVerbs.pause)
    pause_until = from_port.value(DestinationVerbs.pause_until)
    open_breaker = from_port.row(DestinationVerbs.open_breaker, Opened)
    close_breaker = from_port.value(DestinationVerbs.close_breaker)

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
                " approver."
            )
        if answer not in ("done", "not_paused"):
            raise ActRefused(f"Destination {destination} is not resumed: {answer}.")
        return bool(answer == "done")

    async def half_open(self, destination: str, *, actor: str, reason: str, now: Now = None) -> str:
        """An operator's test; `breaker.sql` explains its answers."""
        require_actor_and_reason(actor, reason)
        return str(await self.value("half_open_1", destination, actor, reason, now))
