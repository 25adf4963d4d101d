"""What is written when a stage is settled, in the same transaction: findings, notifications, and who has been notified.

`record_review` follows `llm`: it keeps the findings and enqueues one message for each recipient (key = the triple).
`record_notification` follows `notify`: one write of id, moment and `sent`, after the provider has accepted (R-07).
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from redrive import Attempt, Delivered, Settlement, aenqueue
from redrive.systems.reviews.findings import Finding
from redrive.systems.reviews.mail import notification
from redrive.systems.reviews.names import destination_of, triple_of

Record = Callable[[Any, Attempt, Settlement], Awaitable[None]]
KIND = "review notification"


class ReplaySafety(Protocol):
    """What sending a notification again would do, in words (R-13)."""

    @property
    def on_replay(self) -> str: ...


def recording_review(providers: Mapping[str, ReplaySafety]) -> Record:
    """A recipient whose provider no relay of ours has is enqueued all the same: `redrive status` shows that it
    waits.
    """

    async def record_review(conn: Any, attempt: Attempt, settlement: Settlement) -> None:
        if settlement.closed != "delivered":
            return
        assert isinstance(settlement.answer, Delivered)
        review = settlement.answer.result
        cursor = await conn.execute("SELECT redrive_reviews.findings_of_1(%s)", [attempt.id])
        findings = [Finding.read(one) for one in (await cursor.fetchone())[0]]
        query = "SELECT * FROM redrive_reviews.review_done_1(%s, %s, %s)"
        cursor = await conn.execute(query, [attempt.id, review["critic"], review["findings"]])
        for tenant, changelist_id, recipient, version, provider in await cursor.fetchall():
            payload = notification(
                changelist_id=changelist_id,
                review_version=version,
                recipient=recipient,
                repository=attempt.payload["repository"],
                base=review["base"],
                head=review["head"],
                critic=review["critic"],
                findings=findings,
            )
            triple = triple_of(changelist_id, recipient, version)
            options: dict[str, Any] = {"key": triple, "token_seed": triple, "tenant": tenant, "kind": KIND}
            receipt = await aenqueue(conn, destination_of(provider), payload, **options)
            known = providers.get(provider)
            values = [tenant, changelist_id, recipient, version, receipt.id, known.on_replay if known else None]
            await conn.execute("SELECT redrive_reviews.queued_1(%s, %s, %s, %s, %s, %s)", values)

    return record_review


async def record_notification(conn: Any, attempt: Attempt, settlement: Settlement) -> None:
    answer = settlement.answer
    if settlement.closed == "delivered" and isinstance(answer, Delivered):
        evidence = {"reference": answer.reference, "said": answer.result, "attempt": attempt.number}
        values = [attempt.id, answer.reference, json.dumps(evidence)]
        await conn.execute("SELECT redrive_reviews.mark_sent_1(%s, %s, %s::json)", values)
    elif settlement.park_reason == "dead":
        await conn.execute("SELECT redrive_reviews.mark_failed_1(%s, %s)", [attempt.id, settlement.error_class])
