"""What a message to `case-api` says: one attempt to attach one file to its case."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from redrive import Terminal
from redrive.systems.evidence.names import attachment_key


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """file_type: a media type, or None. sha256: of the file as it was uploaded."""

    artifact_id: UUID
    attempt: int
    file_job_id: UUID
    case_id: UUID
    file_name: str
    file_type: str | None
    file_size_bytes: int
    s3_key: str
    sha256: str

    @classmethod
    def read(cls, payload: Any) -> Attachment:
        """Raises `Terminal`: a person may have edited it."""
        try:
            found = cls(
                artifact_id=UUID(payload["artifact_id"]),
                attempt=payload["attempt"],
                file_job_id=UUID(payload["file_job_id"]),
                case_id=UUID(payload["case_id"]),
                file_name=payload["file_name"],
                file_type=payload["file_type"],
                file_size_bytes=payload["file_size_bytes"],
                s3_key=payload["s3_key"],
                sha256=payload["sha256"],
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise Terminal("PAYLOAD_INVALID", "The message of an attempt does not have its fields.") from None
        texts = (found.file_name, found.s3_key, found.sha256, found.file_type or "")
        numbers = (found.attempt, found.file_size_bytes)
        if not all(type(one) is int for one in numbers) or not all(isinstance(text, str) for text in texts):
            raise Terminal("PAYLOAD_INVALID", "A field of the message of an attempt has another type.")
        return found

    @property
    def payload(self) -> dict[str, Any]:
        return {name: str(value) if isinstance(value, UUID) else value for name, value in asdict(self).items()}

    @property
    def case(self) -> tuple[UUID, UUID]:
        """As far as one upload has to do with it."""
        return self.file_job_id, self.case_id

    @property
    def key(self) -> str:
        return attachment_key(self.artifact_id)
