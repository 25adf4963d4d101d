"""The snapshot's numbers beside those that the proof counts itself, row by row, from the engine's tables."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from redrive.kit.database import open_database
from redrive.kit.proof.environment import ProofEnvironment
from redrive.systems.tenant.names import OUTBOX_DEFAULT, destination_of
from redrive.systems.tenant.prove.app import OPTIONS
from redrive.systems.tenant.prove.judge import Counted
from redrive.systems.tenant.reads import Numbers, numbers

DESTINATION: Final = destination_of(OUTBOX_DEFAULT)
_OPEN: Final = """
SELECT p.tenant, p.spent, '' FROM redrive.pending p WHERE p.destination = %s
UNION ALL SELECT l.tenant, l.spent, '' FROM redrive.lease l WHERE l.destination = %s
UNION ALL SELECT k.tenant, k.spent, k.reason FROM redrive.parked k WHERE k.destination = %s
"""
_ATTEMPTS: Final = "SELECT tenant, closed, settlement, completed_at FROM redrive.attempt WHERE destination = %s"
_CREATED: Final = """
SELECT m.tenant, m.created_at FROM redrive.message m
 WHERE m.id IN (SELECT p.id FROM redrive.pending p WHERE p.destination = %s
                UNION ALL SELECT l.id FROM redrive.lease l WHERE l.destination = %s
                UNION ALL SELECT k.id FROM redrive.parked k WHERE k.destination = %s AND k.reason <> 'dead')
"""
_AGES: Final = (
    "SELECT oldest_age_seconds, latency_mean_seconds FROM redrive_tenant.snapshot(%s, %s, %s, %s) WHERE outbox = %s"
)
# Between the time in a row and that in its id, both of one statement, on a busy machine.
AGE_SECONDS_OFF_MAX: Final = 1.0
_WINDOW: Final = "SELECT processed, failures FROM redrive_tenant.snapshot(%s, %s, %s, %s) WHERE outbox = %s"


class Attempted(NamedTuple):
    tenant: str
    closed: str | None
    settlement: str | None
    completed_at: datetime


def compared(environment: ProofEnvironment, tenants: Sequence[str]) -> list[Counted]:
    """Of all tenants together and of each, over the window of the options and over a part of the run."""
    waiting = environment.rows(_OPEN, DESTINATION, DESTINATION, DESTINATION)
    attempts = [Attempted(*row) for row in environment.rows(_ATTEMPTS, DESTINATION)]
    created = environment.rows(_CREATED, DESTINATION, DESTINATION, DESTINATION)
    said = asyncio.run(_said(environment.dsn, tenants))
    return [
        one
        for tenant in (None, *tenants)
        for one in (
            *_all(tenant, said[tenant], waiting, attempts),
            *_ages(environment, tenant, created),
            *_part(environment, tenant, attempts),
        )
    ]


async def _said(dsn: str, tenants: Sequence[str]) -> Mapping[str | None, Numbers]:
    """By the options that the relays have published."""
    async with open_database(dsn) as store:
        return {tenant: await numbers(store, tenant=tenant) for tenant in (None, *tenants)}


def _all(
    tenant: str | None, said: Numbers, waiting: Sequence[tuple[Any, ...]], attempts: Sequence[Attempted]
) -> Iterator[Counted]:
    mine = [(spent, reason) for owner, spent, reason in waiting if tenant in (None, owner)]
    ended = [one for one in attempts if tenant in (None, one.tenant)]
    processed = sum(one.closed == "delivered" for one in ended)
    failures = sum(one.settlement in ("retry", "park") for one in ended)
    whose = f"of {tenant or 'all'}"
    yield Counted(f"in the backlog {whose}", said.backlog_size, sum(reason != "dead" for _, reason in mine))
    yield Counted(f"failed {whose}", said.failed_pending, sum(spent > 0 or reason == "dead" for spent, reason in mine))
    old = sum(spent >= OPTIONS.old_failure_retries for spent, _ in mine)
    yield Counted(f"old failures {whose}", said.old_failures, old)
    yield Counted(f"dead letters {whose}", said.dead_letters, sum(reason == "dead" for _, reason in mine))
    yield Counted(f"processed {whose}", said.processed, processed)
    yield Counted(f"failures {whose}", said.failures, failures)
    yield Counted(f"events a second {whose}", said.throughput, processed / said.window_seconds)
    ratio = failures / (processed + failures) if processed + failures else 0.0
    yield Counted(f"as the failure ratio {whose}", said.failure_ratio, ratio)


def _ages(environment: ProofEnvironment, tenant: str | None, created: Sequence[tuple[Any, ...]]) -> Iterator[Counted]:
    """At one moment, which both sides are told. What is dead has no age."""
    now = environment.value("SELECT clock_timestamp()")
    values = (tenant, OPTIONS.window_seconds, OPTIONS.old_failure_retries, now, DESTINATION)
    oldest, mean = (environment.rows(_AGES, *values) or [(0.0, 0.0)])[0]
    ages = [max((now - at).total_seconds(), 0.0) for owner, at in created if tenant in (None, owner)] or [0.0]
    whose = f"of {tenant or 'all'}"
    yield Counted(f"seconds as the oldest age {whose}", oldest, max(ages), AGE_SECONDS_OFF_MAX)
    yield Counted(f"seconds as the mean latency {whose}", mean, sum(ages) / len(ages), AGE_SECONDS_OFF_MAX)


def _part(environment: ProofEnvironment, tenant: str | None, attempts: Sequence[Attempted]) -> Iterator[Counted]:
    """The middle third of the run: a window that leaves out what was before and after it."""
    if not attempts:
        return
    first, last = min(one.completed_at for one in attempts), max(one.completed_at for one in attempts)
    third = (last - first) / 3
    begin, end = first + third, last - third
    within = [one for one in attempts if tenant in (None, one.tenant) and begin < one.completed_at <= end]
    values = (tenant, (end - begin).total_seconds(), OPTIONS.old_failure_retries, end, DESTINATION)
    found = environment.rows(_WINDOW, *values)
    processed, failures = found[0] if found else (0, 0)
    whose = f"in the middle of the run of {tenant or 'all'}"
    yield Counted(f"processed {whose}", processed, sum(one.closed == "delivered" for one in within))
    yield Counted(f"failures {whose}", failures, sum(one.settlement in ("retry", "park") for one in within))
