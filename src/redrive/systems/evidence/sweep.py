"""Removes stored objects that no job refers to: what an upload left whose process died, or whose commit failed.

Only objects older than a day are looked at, and an upload is given up after six hours (`upload_seconds_max`), so none
is removed that a running upload has just written. Bounded, and safe to run twice or beside itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from redrive.errors import SettingsError
from redrive.kit.database import Database
from redrive.systems.evidence.storage import Storage, StoredObject
from redrive.systems.evidence.upload_limits import UploadLimits

SWEEP_AFTER: Final = timedelta(hours=24)
OBJECTS_MAX: Final = 10_000
_KNOWN: Final = "SELECT id FROM redrive_evidence.file_job WHERE id = ANY (%s::uuid[])"
_NOW: Final = "SELECT now()"


@dataclass(frozen=True, slots=True)
class Swept:
    """objects: of uploads without a job. partial: files of a local storage that were never finished."""

    objects: int
    partial: int


async def sweep(
    database: Database, storage: Storage, *, after: timedelta = SWEEP_AFTER, now: datetime | None = None
) -> Swept:
    """Remove what is older than `after`. now: None = the database's time."""
    before = (now or (await database.rows(_NOW, ()))[0][0]) - after
    old = await asyncio.to_thread(_old, storage, before)
    jobs = {one.file_job_id for one in old if one.file_job_id is not None}
    known = {row[0] for row in await database.rows(_KNOWN, ([str(one) for one in jobs],))} if jobs else set()
    orphans = [one.key for one in old if one.file_job_id is not None and one.file_job_id not in known]
    await asyncio.to_thread(storage.remove, orphans)
    return Swept(len(orphans), await asyncio.to_thread(storage.remove_partial, before=before))


def check_sweep(limits: UploadLimits, after: timedelta = SWEEP_AFTER) -> None:
    """SettingsError where an upload could still run when its objects are swept."""
    if limits.upload_seconds_max * 2 > after.total_seconds():
        raise SettingsError(
            f"evidence: upload_seconds_max is {limits.upload_seconds_max}; it must be at most half of the"
            f" {after.total_seconds():.0f} seconds after which objects without a job are removed."
        )


def _old(storage: Storage, before: datetime) -> Sequence[StoredObject]:
    found = []
    for one in storage.objects():
        if one.modified_at < before:
            found.append(one)
            if len(found) >= OBJECTS_MAX:
                break
    return found
