"""Names that the parts of the evidence system share: topics, destinations, event types, keys.

A topic is the name of a broker's topic and of the engine's destination that publishes to it.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

SYSTEM: Final = "evidence"
TENANT: Final = "default"

ATTACH_REQUESTS: Final = "evidence.attach.requests"
FAILED_REQUESTS: Final = "evidence.failed.requests"
ATTACH_RESULTS: Final = "evidence.attach.results"
TOPICS: Final = (ATTACH_REQUESTS, FAILED_REQUESTS, ATTACH_RESULTS)

CASE_API: Final = "case-api"
NOTICE_MAIL: Final = "evidence.notice.mail"
NOTICE_WEBHOOK: Final = "evidence.notice.webhook"

ATTACH_REQUEST: Final = "EVIDENCE_ATTACH_REQUEST"
ATTACH_RETRY: Final = "EVIDENCE_ATTACH_RETRY"
ARTIFACT_RESULT: Final = "EvidenceArtifactResult"
SCHEMA_VERSION: Final = 1

N1: Final = "N1"
N2: Final = "N2"


def attachment_key(artifact_id: UUID | str) -> str:
    """By what the Case API knows an attachment: the same at every attempt, so that it can be asked for."""
    return f"evidence:{artifact_id}"


def attempt_key(artifact_id: UUID | str, number: int) -> str:
    """The idempotency key of an attempt's message to the Case API."""
    return f"evidence:{artifact_id}:{number}"
