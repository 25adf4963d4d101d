"""The retry scheduler (E-03): a duty that requeues what is due, so it runs once at a time over all relays.

Batches of 200 rows, each in one transaction, with a pause of 2 to 5 s between them. While the breaker of the Case API
is open nothing is requeued. SQL: `sql/verbs/schedule.sql`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from redrive import Duty
from redrive.kit.database import Database, database_duty
from redrive.systems.evidence.settings import EvidenceSettings

DUTY: Final = "evidence.scheduler"
# Below what a duty may take before another relay replaces it.
SECONDS_MAX: Final = 30.0
_SCHEDULE: Final = "SELECT * FROM redrive_evidence.schedule_retries_1(%s, %s, %s, %s, %s)"
_RAN: Final = "SELECT redrive_evidence.scheduler_ran_1(%s, %s, %s)"

Sleep = Callable[[float], Awaitable[None]]


@dataclass
class Scheduled:
    """is_breaker_open: the Case API is down, so nothing more was requeued."""

    batches: int = 0
    rows: int = 0
    artifacts: int = 0
    is_breaker_open: bool = False

    def __str__(self) -> str:
        if self.is_breaker_open:
            return f"{self.rows} rows requeued; the Case API is down"
        return f"{self.rows} rows with {self.artifacts} files requeued"


def duty(settings: EvidenceSettings) -> Duty:
    async def run_once(database: Database) -> str:
        return str(await schedule(database, settings))

    return database_duty(DUTY, run_once, every_seconds=settings.scheduler_every_seconds)


async def schedule(
    database: Database,
    settings: EvidenceSettings,
    *,
    file_job_id: UUID | None = None,
    rng: random.Random | None = None,
    sleep: Sleep = asyncio.sleep,
) -> Scheduled:
    """One run. file_job_id: None = all jobs. What is left after half a minute is left to the next run."""
    began, chance = time.monotonic(), rng or random.Random()
    done = Scheduled()
    values: list[object] = [file_job_id, settings.batch_size_rows, settings.max_attempts]
    values += [settings.deadline_seconds, settings.requeue_seconds]
    while True:
        found = (await database.rows(_SCHEDULE, values))[0]
        done.rows += found.rows_scheduled
        done.artifacts += found.artifacts_scheduled
        done.batches += found.rows_scheduled > 0
        done.is_breaker_open = found.is_breaker_open
        pause = chance.uniform(*settings.sleep_between_batches_seconds)
        if found.rows_scheduled < settings.batch_size_rows or time.monotonic() - began + pause > SECONDS_MAX:
            break
        await sleep(pause)
    await database.rows(_RAN, [time.monotonic() - began, done.rows, done.is_breaker_open])
    return done
