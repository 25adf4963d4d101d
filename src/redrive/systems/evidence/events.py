"""The events of evidence by contract (E-11): what a topic carries, read strictly by its `schema_version`.

    evidence.attach.requests   EVIDENCE_ATTACH_REQUEST   attempts of a row for the first time, with all its artifacts
    evidence.failed.requests   EVIDENCE_ATTACH_RETRY     attempts of a row again, with a reason
    evidence.attach.results    EvidenceArtifactResult    what an attempt ended with

They are written by `sql/verbs/events.sql`. A version that is not known, or an event that does not keep its contract, is
`SCHEMA_INVALID`: a dead letter, never guessed. Fields that a contract does not name are left alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from uuid import UUID

from redrive import Terminal
from redrive.systems.evidence.names import ARTIFACT_RESULT, ATTACH_RETRY

SCHEMA_INVALID: Final = "SCHEMA_INVALID"
ARTIFACTS_MAX: Final = 1000
STATUSES: Final = ("ATTACHED", "FAILED")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class RequestedArtifact:
    artifact_id: UUID
    s3_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachRequest:
    """occurred_at: RFC 3339 text. retry_reason: None at the first attempt."""

    event_id: UUID
    event_type: str
    occurred_at: str
    file_job_id: UUID
    file_job_row_id: UUID
    case_id: UUID
    artifacts: tuple[RequestedArtifact, ...]
    retry_reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactResult:
    """status: ATTACHED or FAILED. error_code, error_category: of FAILED, else None."""

    event_id: UUID
    occurred_at: str
    file_job_id: UUID
    file_job_row_id: UUID
    case_id: UUID
    artifact_id: UUID
    status: str
    error_code: str | None
    error_category: str | None
    attempt_count: int
    retry_status: str


def read_request(body: bytes, *, event_type: str) -> AttachRequest:
    """event_type: of the topic. Raises `Terminal` with the code SCHEMA_INVALID; its text names the field."""
    fields = _Fields.of(body)
    reader = _version(fields, _REQUESTS)
    fields.constant("event_type", event_type)
    return reader(fields)


def read_result(body: bytes) -> ArtifactResult:
    """As `read_request`."""
    fields = _Fields.of(body)
    reader = _version(fields, _RESULTS)
    fields.constant("event_type", ARTIFACT_RESULT)
    return reader(fields)


@dataclass(frozen=True, slots=True)
class _Fields:
    """A JSON object, read field by field."""

    values: Mapping[str, Any]
    place: str = ""

    @classmethod
    def of(cls, body: bytes) -> _Fields:
        try:
            values = json.loads(body)
        except (ValueError, RecursionError):
            raise _invalid("The event is not JSON.") from None
        if not isinstance(values, dict):
            raise _invalid("The event is no JSON object.")
        return cls(values)

    def text(self, name: str) -> str:
        value = self.values.get(name)
        if not isinstance(value, str) or not value:
            raise _invalid(f"{self.place}{name} must be a text.")
        return value

    def text_or_none(self, name: str) -> str | None:
        return None if self.values.get(name) is None else self.text(name)

    def id(self, name: str) -> UUID:
        try:
            return UUID(self.text(name))
        except ValueError:
            raise _invalid(f"{self.place}{name} must be a UUID.") from None

    def count(self, name: str) -> int:
        value = self.values.get(name)
        if type(value) is not int or value < 0:  # True is an int too
            raise _invalid(f"{self.place}{name} must be a whole number of 0 or more.")
        return value

    def constant(self, name: str, wanted: str) -> None:
        if self.values.get(name) != wanted:
            raise _invalid(f"{self.place}{name} must be {wanted} on this topic.")

    def one_of(self, name: str, wanted: tuple[str, ...]) -> str:
        if (value := self.values.get(name)) not in wanted:
            raise _invalid(f"{self.place}{name} must be one of {', '.join(wanted)}.")
        return str(value)

    def parts(self, name: str) -> list[_Fields]:
        """One or more objects in a list."""
        values = self.values.get(name)
        if not isinstance(values, list) or not 0 < len(values) <= ARTIFACTS_MAX:
            raise _invalid(f"{self.place}{name} must be a list of 1 to {ARTIFACTS_MAX}.")
        if not all(isinstance(value, dict) for value in values):
            raise _invalid(f"{self.place}{name} must hold objects.")
        return [_Fields(value, f"{name}[{number}].") for number, value in enumerate(values)]


def _request_1(fields: _Fields) -> AttachRequest:
    reason = fields.text_or_none("retry_reason")
    if fields.values["event_type"] == ATTACH_RETRY and reason is None:
        raise _invalid("retry_reason must be a text.")
    return AttachRequest(
        event_id=fields.id("event_id"),
        event_type=fields.text("event_type"),
        occurred_at=fields.text("occurred_at"),
        file_job_id=fields.id("file_job_id"),
        file_job_row_id=fields.id("file_job_row_id"),
        case_id=fields.id("case_id"),
        artifacts=tuple(
            RequestedArtifact(one.id("artifact_id"), one.text("s3_key")) for one in fields.parts("artifacts")
        ),
        retry_reason=reason,
    )


def _result_1(fields: _Fields) -> ArtifactResult:
    status = fields.one_of("status", STATUSES)
    return ArtifactResult(
        event_id=fields.id("event_id"),
        occurred_at=fields.text("occurred_at"),
        file_job_id=fields.id("file_job_id"),
        file_job_row_id=fields.id("file_job_row_id"),
        case_id=fields.id("case_id"),
        artifact_id=fields.id("artifact_id"),
        status=status,
        error_code=fields.text("error_code") if status == "FAILED" else fields.text_or_none("error_code"),
        error_category=fields.text("error_category") if status == "FAILED" else fields.text_or_none("error_category"),
        attempt_count=fields.count("attempt_count"),
        retry_status=fields.text("retry_status"),
    )


_REQUESTS: Final[Mapping[int, Callable[[_Fields], AttachRequest]]] = {1: _request_1}
_RESULTS: Final[Mapping[int, Callable[[_Fields], ArtifactResult]]] = {1: _result_1}


def _version(fields: _Fields, readers: Mapping[int, Callable[[_Fields], R]]) -> Callable[[_Fields], R]:
    version = fields.count("schema_version")
    if version not in readers:
        raise _invalid(f"schema_version is {version}; known are {', '.join(map(str, readers))}.")
    return readers[version]


def _invalid(text: str) -> Terminal:
    return Terminal(SCHEMA_INVALID, text)
