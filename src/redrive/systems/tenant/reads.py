"""Reads of the outbox: the snapshot of its numbers, and pages of events. SQL: `sql/reads`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from typing import Any, Final, Literal
from uuid import UUID

from redrive.kit.database import Database, SqlFiles, snapshot
from redrive.systems.tenant.options import OutboxOptions

SQL: Final = SqlFiles(files("redrive.systems.tenant") / "sql" / "reads")
TOTAL_MAX: Final = 10_000
SNIPPET_MAX: Final = 200  # characters of an error in a list

Status = Literal["pending", "failed", "processed"]


@dataclass(frozen=True, slots=True)
class Numbers:
    """Of all outboxes together, or of one tenant in them. processed, failures: attempts that ended in the window."""

    window_seconds: float
    backlog_size: int
    failed_pending: int
    old_failures: int
    dead_letters: int
    oldest_age_seconds: float
    processing_latency_seconds: float
    processed: int
    failures: int

    @property
    def throughput(self) -> float:
        """Events processed a second."""
        return self.processed / self.window_seconds

    @property
    def failure_ratio(self) -> float:
        attempts = self.processed + self.failures
        return self.failures / attempts if attempts else 0.0


@dataclass(frozen=True, slots=True)
class Listed:
    """An event in a list: what is needed to find it, and the beginning of its error."""

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


@dataclass(frozen=True, slots=True)
class Page:
    """total: of all pages; with total_is_capped there are more than that."""

    items: Sequence[Listed]
    total: int
    total_is_capped: bool


async def numbers(database: Database, *, tenant: str | None, options: OutboxOptions | None = None) -> Numbers:
    """options: None = as the relays published them."""
    async with snapshot(database) as reads:
        chosen = options or _options(await SQL.read(reads, "options", {}))
        window = {"window_seconds": chosen.window_seconds, "old_failure_retries": chosen.old_failure_retries}
        rows = await SQL.read(reads, "snapshot", {"tenant": tenant, **window})
    return summed(rows, chosen.window_seconds)


async def published_options(database: Database) -> OutboxOptions:
    """Of the outbox whose relays published last; the defaults before any relay has run."""
    async with snapshot(database) as reads:
        return _options(await SQL.read(reads, "options", {}))


async def list_events(
    database: Database, *, status: Status, tenant: str | None, event_type: str | None, page: int, page_size: int
) -> Page:
    named: dict[str, Any] = {
        "tenant": tenant,
        "event_type": event_type,
        "limit": page_size,
        "offset": (page - 1) * page_size,
        "failed": status == "failed",
    }
    async with snapshot(database) as reads:
        rows = await SQL.read(reads, "processed" if status == "processed" else "unprocessed", named)
    total = rows[0]["total"] if rows else 0
    items = [_listed(row) for row in rows if row["id"] is not None]
    return Page(items, min(total, TOTAL_MAX), total_is_capped=total > TOTAL_MAX)


def summed(rows: Sequence[Mapping[str, Any]], window_seconds: float) -> Numbers:
    """One row an outbox; the mean latency is that of all their events."""
    backlog = sum(row["backlog_size"] for row in rows)
    waited = sum(row["latency_mean_seconds"] * row["backlog_size"] for row in rows)
    return Numbers(
        window_seconds=window_seconds,
        backlog_size=backlog,
        failed_pending=sum(row["failed_pending"] for row in rows),
        old_failures=sum(row["old_failures"] for row in rows),
        dead_letters=sum(row["dead_letters"] for row in rows),
        oldest_age_seconds=max((row["oldest_age_seconds"] for row in rows), default=0.0),
        processing_latency_seconds=waited / backlog if backlog else 0.0,
        processed=sum(row["processed"] for row in rows),
        failures=sum(row["failures"] for row in rows),
    )


def _options(rows: Sequence[Mapping[str, Any]]) -> OutboxOptions:
    if not rows:
        return OutboxOptions()
    newest = max(rows, key=lambda row: row["published_at"])["options"]
    return OutboxOptions.of(json.loads(newest) if isinstance(newest, str) else newest)


def _listed(row: Mapping[str, Any]) -> Listed:
    error = row["error"]
    return Listed(
        id=row["id"],
        tenant_id=row["tenant_id"],
        event_type=row["event_type"],
        created_at=row["created_at"],
        retry_count=row["retry_count"],
        processed_at=row["processed_at"],
        next_attempt_at=row["next_attempt_at"],
        dead_letter=row["dead_letter"],
        state=row["state"],
        last_error_snippet=None if error is None else error[:SNIPPET_MAX],
    )
