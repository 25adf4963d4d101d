"""Removes stored objects that no job refers to: what an upload left whose process died, or whose commit failed.

Only objects older than a day are looked at, and an upload is given up after six hours (`upload_seconds_max`), so none
is removed that a running upload has just written. Bounded, and safe to run twice or beside itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from redrive import Duty
from redrive.errors import SettingsError
from redrive.kit.database import Database, database_duty
from redrive.systems.evidence.upload_limits import UploadLimits

if TYPE_CHECKING:
    from redrive.systems.evidence.storage import StoredObject  # needs obstore

DUTY: Final = "evidence.sweep"
EVERY_SECONDS: Final = 3600.0
SWEEP_AFTER: Final = timedelta(hours=24)
OBJECTS_MAX: Final = 10_000  # removed in one run
BATCH: Final = 500
_KNOWN: Final = "SELECT redrive_evidence.known_uploads_1(%s::uuid[])"
_NOW: Final = "SELECT now()"


@dataclass(frozen=True, slots=True)
class Swept:
    """objects: of uploads without a job. partial: files of a local storage that were never finished."""

    objects: int
    partial: int


@runtime_checkable
class SweptFiles(Protocol):
    """A store that can be swept: `Storage`."""

    def objects(self) -> Iterator[StoredObject]: ...
    def remove(self, keys: Iterable[str]) -> None: ...
    def remove_partial(self, *, before: datetime) -> int: ...


def duty(files: SweptFiles) -> Duty:
    async def run_once(database: Database) -> str:
        done = await sweep(database, files)
        return f"{done.objects} objects and {done.partial} partial files removed"

    return database_duty(DUTY, run_once, every_seconds=EVERY_SECONDS)


async def sweep(
    database: Database, storage: SweptFiles, *, after: timedelta = SWEEP_AFTER, now: datetime | None = None
) -> Swept:
    """Remove what is older than `after`. now: None = the database's time."""
    before = (now or (await database.rows(_NOW, ()))[0][0]) - after
    old = (one for one in storage.objects() if one.file_job_id is not None and one.modified_at < before)
    removed = 0
    while removed < OBJECTS_MAX and (batch := await asyncio.to_thread(list, islice(old, BATCH))):
        jobs = {str(one.file_job_id) for one in batch}
        known = {row[0] for row in await database.rows(_KNOWN, (list(jobs),))}
        orphans = [one.key for one in batch if one.file_job_id not in known]
        await asyncio.to_thread(storage.remove, orphans)
        removed += len(orphans)
    return Swept(removed, await asyncio.to_thread(storage.remove_partial, before=before))


def check_sweep(limits: UploadLimits, after: timedelta = SWEEP_AFTER) -> None:
    """SettingsError where an upload could still run when its objects are swept."""
    if limits.upload_seconds_max * 2 > after.total_seconds():
        raise SettingsError(
            f"evidence: upload_seconds_max is {limits.upload_seconds_max}; it must be at most half of the"
            f" {after.total_seconds():.0f} seconds after which objects without a job are removed."
        )
