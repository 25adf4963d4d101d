"""Acts of operators on messages and ordering keys."""

from collections.abc import Sequence
from typing import Protocol

from redrive.message import CancelAnswer, HistoryEntry, MessageId
from redrive.ports.clock import Now


class OperatorVerbs(Protocol):
    """Each act is written into the audit with its actor and reason; a refusal is raised."""

    async def cancel(
        self, id: MessageId, *, actor: str | None = None, reason: str | None = None, now: Now = None
    ) -> CancelAnswer: ...

    async def requeue(
        self,
        id: MessageId,
        *,
        actor: str,
        reason: str,
        stage: str | None = None,
        out_of_order: bool = False,
        now: Now = None,
    ) -> None:
        """Dead to pending. Refused where later messages of its ordering key went out, unless `out_of_order`."""

    async def confirm(
        self, id: MessageId, *, actor: str, reason: str, reference: str | None = None, now: Now = None
    ) -> None: ...

    async def deny(self, id: MessageId, *, actor: str, reason: str, now: Now = None) -> None: ...

    async def repair(self, id: MessageId, *, actor: str, reason: str, now: Now = None) -> None: ...

    async def discard(self, id: MessageId, *, actor: str, reason: str, now: Now = None) -> None: ...

    async def skip(
        self, tenant: str, order_by: str, *, actor: str, reason: str, sequence: int | None = None, now: Now = None
    ) -> None:
        """Close the head of an ordering key unless it is being sent; with `sequence`, only if that is the head."""

    async def history(self, id: MessageId) -> Sequence[HistoryEntry]: ...
