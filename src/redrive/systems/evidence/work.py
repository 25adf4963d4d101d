"""What a relay asks the tables of evidence before it calls the Case API: whether the attempt may still be made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, LiteralString
from uuid import UUID

from redrive import MessageId, Retryable
from redrive.kit.database import RelayDatabase, TransientFailure

GO: Final = "go"
OVER: Final = "over"
LATE: Final = "late"
CASE_GONE: Final = "case_gone"
UNKNOWN: Final = "unknown"


class AttemptTable(RelayDatabase):
    def __init__(self) -> None:
        super().__init__("redrive evidence")

    async def permit(self, id: MessageId, artifact_id: UUID, *, deadline_seconds: float) -> str:
        """A word of `sql/verbs/permit.sql`."""
        query = "SELECT redrive_evidence.attach_permit_1(%s, %s, %s)"
        return str((await self.rows(query, [id, artifact_id, deadline_seconds]))[0][0])

    async def rows(self, query: LiteralString, values: Sequence[Any]) -> list[Any]:
        """A database that does not answer can be asked again: nothing was sent, and the attempt is not spent."""
        try:
            return await super().rows(query, values)
        except TransientFailure:
            text = "The database did not answer; nothing was sent."
            raise Retryable("DATABASE_UNREACHABLE", text, destination_down=True) from None
