"""What a relay asks the tables of evidence before it calls the Case API: whether the attempt may still be made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, LiteralString
from uuid import UUID

from redrive import MessageId, Retryable
from redrive.errors import UsageError
from redrive.kit.database import Database, TransientFailure

CONNECTIONS: Final = 2
GO: Final = "go"
OVER: Final = "over"
LATE: Final = "late"
CASE_GONE: Final = "case_gone"
UNKNOWN: Final = "unknown"


class AttemptTable:
    """Opened when it is first used; `use_database` is called by the relay."""

    def __init__(self) -> None:
        self._dsn: str | None = None
        self._database: Database | None = None

    def use_database(self, dsn: str) -> None:
        self._dsn = dsn

    async def permit(self, id: MessageId, artifact_id: UUID, *, deadline_seconds: float) -> str:
        """A word of `sql/verbs/permit.sql`."""
        query = "SELECT redrive_evidence.attach_permit_1(%s, %s, %s)"
        return str((await self._rows(query, [id, artifact_id, deadline_seconds]))[0][0])

    async def _rows(self, query: LiteralString, values: Sequence[Any]) -> list[Any]:
        """A database that does not answer can be asked again: nothing was sent, and the attempt is not spent."""
        if self._dsn is None:
            raise UsageError("Evidence is attached by a relay, which says where the database is.")
        try:
            if self._database is None:
                name = "redrive evidence"
                self._database = await Database(self._dsn, connections=CONNECTIONS, name=name).__aenter__()
            return await self._database.rows(query, values)
        except TransientFailure:
            text = "The database did not answer; nothing was sent."
            raise Retryable("DATABASE_UNREACHABLE", text, destination_down=True) from None

    async def aclose(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            await database.__aexit__(None, None, None)
