"""What a review works on: the diff and the findings, in a table of its own (`sql/verbs/work.sql`).

The result of a stage is shown by the engine's lists of attempts, so neither diff nor findings are in it (R-04): it has
their hashes and counts. A stage writes here before it is settled, the same for every attempt.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, LiteralString

from redrive import Attempt, MessageId
from redrive.kit.database import RelayDatabase, TransientFailure
from redrive.kit.transport import Answer
from redrive.systems.reviews.findings import Finding
from redrive.systems.reviews.taxonomy import retryable, terminal


class WorkTable(RelayDatabase):
    def __init__(self) -> None:
        super().__init__("redrive reviews")

    async def keep_diff(self, id: MessageId, diff: str) -> None:
        await self.rows("SELECT redrive_reviews.keep_diff_1(%s, %s)", [id, diff])

    async def diff(self, id: MessageId) -> str:
        found = (await self.rows("SELECT redrive_reviews.diff_of_1(%s)", [id]))[0][0]
        if found is None:
            raise terminal("NOT_FOUND", "The diff is not kept any more; replay the review from its first stage.")
        return str(found)

    async def keep_findings(self, id: MessageId, findings: Sequence[Finding]) -> None:
        said = json.dumps([one.as_json() for one in findings])
        await self.rows("SELECT redrive_reviews.keep_findings_1(%s, %s::json)", [id, said])

    async def rows(self, query: LiteralString, values: Sequence[Any]) -> list[Any]:
        """A database that does not answer can be asked again: nothing was sent."""
        try:
            return await super().rows(query, values)
        except TransientFailure:
            raise retryable("DATABASE_UNREACHABLE", "The database did not answer; nothing was sent.") from None


class WithWork:
    """A transport whose handlers use the work table: the relay tells it where the database is, and closes it."""

    def __init__(self, transport: Any, work: WorkTable) -> None:
        self._transport, self._work = transport, work
        self.use_database = work.use_database

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    async def send(self, attempt: Attempt) -> Answer | None:
        answer: Answer | None = await self._transport.send(attempt)
        return answer

    async def aclose(self) -> None:
        await self._work.aclose()
