"""What workers do with the events of the topics, each in the transaction of its inbox row (E-02, E-03).

A request becomes one message to `case-api` for each of its artifacts that is to be attempted now; the others are left
alone, so that an event which comes twice, or too late, does nothing more. Its key is artifact and number of the
attempt. A result decides whether N1 or N2 is sent (E-12), and is sent on to the topic of its category where topics for
categories are wanted (E-10).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from redrive import Event, aenqueue
from redrive.systems.evidence.attachment import Attachment
from redrive.systems.evidence.events import read_request, read_result
from redrive.systems.evidence.gates import batches_of
from redrive.systems.evidence.names import CASE_API, attachment_key, attempt_key
from redrive.systems.evidence.settings import EvidenceSettings
from redrive.systems.evidence.taxonomy import Category

Handler = Callable[[Any, Event], Awaitable[None]]
KIND: Final = "evidence attachment"
RETRY_COUNT: Final = "retry_count"  # of the message's headers: attempts before this one
CATEGORY_TOPICS: Final = {category: f"evidence.failed.{category.lower()}" for category in Category}
_ELIGIBLE: Final = """
SELECT artifact_id, attempt, tenant, file_job_id, case_id, file_name, file_type, file_size_bytes, s3_key, sha256
  FROM redrive_evidence.eligible_artifacts_1(%s, %s, %s)
"""
_MAY_OPEN: Final = "SELECT redrive_evidence.gate_may_open_1(%s)"
_BEGIN: Final = "SELECT redrive_evidence.begin_attempt_1(%s, %s, %s)"


def requests_handler(event_type: str, settings: EvidenceSettings) -> Handler:
    """event_type: of the topic."""

    async def take_request(conn: Any, event: Event) -> None:
        request = read_request(event.body, event_type=event_type)
        ids = [one.artifact_id for one in request.artifacts]
        cursor = await conn.execute(_ELIGIBLE, [ids, settings.max_attempts, settings.deadline_seconds])
        for artifact_id, attempt, tenant, job_id, case_id, name, kind, size, s3_key, sha256 in await cursor.fetchall():
            wanted = Attachment(
                artifact_id=artifact_id,
                attempt=attempt,
                file_job_id=job_id,
                case_id=case_id,
                file_name=name,
                file_type=kind,
                file_size_bytes=size,
                s3_key=s3_key,
                sha256=sha256,
            )
            await _begin(conn, wanted, tenant)

    return take_request


async def _begin(conn: Any, wanted: Attachment, tenant: str) -> None:
    """The token is of the attachment, and so the same for every attempt."""
    receipt = await aenqueue(
        conn,
        CASE_API,
        wanted.payload,
        key=attempt_key(wanted.artifact_id, wanted.attempt),
        token_seed=attachment_key(wanted.artifact_id),
        tenant=tenant,
        kind=KIND,
        headers={RETRY_COUNT: str(wanted.attempt - 1)},
    )
    await conn.execute(_BEGIN, [wanted.artifact_id, wanted.attempt, receipt.id])


def results_handler(settings: EvidenceSettings, *, topics_by_category: bool = False) -> Handler:
    """The gates are looked at only where one may open: deciding takes the job's lock, and counts all its files."""
    batches = batches_of(settings)

    async def take_result(conn: Any, event: Event) -> None:
        result = read_result(event.body)
        if topics_by_category and result.error_category is not None:
            topic = CATEGORY_TOPICS[Category(result.error_category)]
            key = f"evidence:category:{result.event_id}"
            await aenqueue(conn, topic, event.data, key=key, kind=event.type)
        cursor = await conn.execute(_MAY_OPEN, [result.file_job_id])
        if (await cursor.fetchone())[0]:
            await batches.adecide(conn, result.file_job_id)

    return take_result
