"""The JSON documents of the outbox, with names such as `retryCount`: the API and `--json` show the same."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from redrive.systems.tenant.health import Health
from redrive.systems.tenant.reads import Listed, Numbers, Page


class Document(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class EventItem(Document):
    """An event. retryCount: failed attempts. lastErrorSnippet: the beginning of what the last one said."""

    id: UUID
    tenant_id: str
    event_type: str
    created_at: datetime
    retry_count: int
    processed_at: datetime | None
    next_attempt_at: datetime | None
    dead_letter: bool
    state: str
    last_error_snippet: str | None

    @classmethod
    def of(cls, one: Listed) -> EventItem:
        return cls(**{name: getattr(one, name) for name in cls.model_fields})


class EventList(Document):
    """A page. total: of all pages; with totalIsCapped there are more."""

    items: Sequence[EventItem]
    page: int
    page_size: int
    total: int
    total_is_capped: bool

    @classmethod
    def of(cls, found: Page, *, page: int, page_size: int) -> EventList:
        items = [EventItem.of(one) for one in found.items]
        return cls(
            items=items, page=page, page_size=page_size, total=found.total, total_is_capped=found.total_is_capped
        )


class Snapshot(Document):
    """The numbers of the tables at one moment. throughput: events a second. failureRatio: of the attempts in the
    window. Backlog and ages leave dead letters out; failedPending and oldFailures count them.
    """

    window_seconds: float
    backlog_size: int
    failed_pending: int
    old_failures: int
    dead_letters: int
    oldest_age_seconds: float
    processing_latency_seconds: float
    processed: int
    failures: int
    throughput: float
    failure_ratio: float

    @classmethod
    def of(cls, numbers: Numbers) -> Snapshot:
        return cls(**{name: getattr(numbers, name) for name in cls.model_fields})


class HealthCheck(Document):
    name: str
    value: float
    verdict: str
    limit: float | None


class HealthReport(Document):
    """verdict: healthy, degraded or unhealthy; reasons says why."""

    verdict: str
    reasons: Sequence[str]
    checks: Sequence[HealthCheck]

    @classmethod
    def of(cls, health: Health) -> HealthReport:
        checks = [
            HealthCheck(name=one.name, value=one.value, verdict=one.verdict, limit=one.limit) for one in health.checks
        ]
        return cls(verdict=health.verdict, reasons=health.reasons, checks=checks)
