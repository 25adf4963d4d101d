"""`upload`: an archive becomes a job with its rows, artifacts and first events, or nothing at all.

Everything is checked before anything is stored (`checking.py`). Then the files are
stored, and one transaction writes the job (`sql/verbs/upload.sql`). A refused or failed upload removes the objects that
it stored; those of a process that died are removed by the sweep, because no job refers to them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, LiteralString, Protocol, TypeVar
from uuid import UUID

from redrive.errors import InvalidValue, UsageError
from redrive.kit.statements import Steps, as_headers, shown
from redrive.systems.evidence.archive import Archive
from redrive.systems.evidence.checking import Checked, CheckedFile, checked_archive
from redrive.systems.evidence.file_types import MEDIA_TYPES
from redrive.systems.evidence.ids import ascending_ids
from redrive.systems.evidence.manifest import Line
from redrive.systems.evidence.names import TENANT
from redrive.systems.evidence.problems import refused
from redrive.systems.evidence.storage import Storage, StoredFile, key_of
from redrive.systems.evidence.upload_limits import UploadLimits

T = TypeVar("T")
MERCHANT_MAX: Final = 200
KEY_MAX: Final = 500
NAME_MAX: Final = 500
ADDRESS_MAX: Final = 2000
_FIND: Final[LiteralString] = (
    "SELECT file_job_id, archive_sha256 FROM redrive_evidence.find_upload_1(%s::text, %s::text)"
)
_INSERT: Final[LiteralString] = (
    "SELECT result, file_job_id FROM redrive_evidence.insert_upload_1(%s::text, %s::text::json, %s::text::json,"
    " %s::text::json)"
)


class UploadConflict(UsageError):
    """The idempotency key was used for another archive. Nothing was stored.

    file_job_id: the job that was made from that archive.
    """

    code = "UPLOAD_CONFLICT"

    def __init__(self, key: str, file_job_id: UUID) -> None:
        super().__init__(f"The key {shown(key)} was used for another archive, which is job {file_job_id}.")
        self.file_job_id = file_job_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """merchant_id: whose evidence it is, 1 to 200 characters. idempotency_key: the same archive under the same key is
    uploaded once; None: the archive's sha256. notify_mail, notify_webhook: where the two notices go. archive_name: how
    reports and notices name the archive; None: its file name.
    """

    archive: Path
    merchant_id: str
    idempotency_key: str | None = None
    notify_mail: str | None = None
    notify_webhook: str | None = None
    archive_name: str | None = None
    tenant: str = TENANT

    @property
    def file(self) -> str:
        return self.archive_name or self.archive.name


@dataclass(frozen=True, slots=True)
class Uploaded:
    """already_existed: the same archive was uploaded under the key before; this is that job, and nothing was stored."""

    file_job_id: UUID
    rows: int
    artifacts: int
    archive_sha256: str
    already_existed: bool


class Transact(Protocol):
    """Runs statements in a transaction of their own, and commits it."""

    def __call__(self, steps: Steps[T], /) -> T: ...


def upload(
    transact: Transact,
    storage: Storage,
    asked: Upload,
    *,
    limits: UploadLimits | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Uploaded:
    """Check, store, and write the job. UploadRefused and UploadConflict leave no object.

    No transaction is open while files are stored. Where the last one fails, it may have committed: the objects stay,
    and the sweep removes them unless there is a job.
    """
    limits = limits or UploadLimits()
    deadline = clock() + limits.upload_seconds_max
    _check_fields(asked)
    with checked_archive(asked.archive, limits, asked.file) as (checked, archive):
        key = asked.idempotency_key or checked.archive_sha256
        if (known := transact(_find(asked.tenant, key, checked.archive_sha256))) is not None:
            return _uploaded(known, checked, already_existed=True)
        ids = ascending_ids()
        plan = _Plan(next(ids), storage, archive, ids)
        try:
            rows = [plan.row(line, files) for line, files in checked.lines]
            if clock() > deadline:
                detail = f"it took longer than {limits.upload_seconds_max} seconds."
                raise refused(asked.file, "UPLOAD_TOO_SLOW", detail)
        except BaseException:
            plan.undo()
            raise
        result, id = transact(_insert(asked, key, plan.file_job_id, checked, rows))
        if result == "new":
            return _uploaded(id, checked, already_existed=False)
        plan.undo()  # another upload under the same key came first
        if result == "conflict":
            raise UploadConflict(key, id)
        return _uploaded(id, checked, already_existed=True)


def _check_fields(asked: Upload) -> None:
    _text("merchant_id", asked.merchant_id, MERCHANT_MAX)
    _text("archive_name", asked.file, NAME_MAX)
    for name, value, most in (
        ("idempotency_key", asked.idempotency_key, KEY_MAX),
        ("notify_mail", asked.notify_mail, ADDRESS_MAX),
        ("notify_webhook", asked.notify_webhook, ADDRESS_MAX),
    ):
        if value is not None:
            _text(name, value, most)


def _text(name: str, value: object, most: int) -> None:
    if not isinstance(value, str) or not 1 <= len(value) <= most or not value.isprintable():
        raise InvalidValue(f"{name} is {shown(value)}; it must be a text of 1 to {most} printable characters.")


@dataclass(frozen=True)
class _Plan:
    """Stores the files of one job. keys: what was begun, for `undo`."""

    file_job_id: UUID
    storage: Storage
    archive: Archive
    ids: Iterator[UUID]
    keys: list[str] = field(default_factory=list)

    def row(self, line: Line, files: Sequence[CheckedFile]) -> Mapping[str, Any]:
        return {
            "file_job_row_id": str(next(self.ids)),
            "row_number": line.number,
            "case_id": str(line.case_id),
            "artifacts": [self._artifact(one) for one in files],
        }

    def _artifact(self, file: CheckedFile) -> Mapping[str, Any]:
        id = next(self.ids)
        stored = self._store(key_of(self.file_job_id, id), file)
        return {
            "artifact_id": str(id),
            "file_name": file.member.name,
            "file_type": MEDIA_TYPES[file.type],
            "file_size_bytes": stored.size_bytes,
            "s3_key": stored.key,
            "sha256": stored.sha256,
        }

    def _store(self, key: str, file: CheckedFile) -> StoredFile:
        self.keys.append(key)
        stored = self.storage.put(key, self.archive.read(file.member))
        if stored.sha256 != file.sha256:
            raise refused(file.member.name, "FILE_CHANGED", "the archive was changed while it was read.")
        return stored

    def undo(self) -> None:
        self.storage.remove(self.keys)


def _find(tenant: str, key: str, sha256: str) -> Steps[UUID | None]:
    rows = yield _FIND, (tenant, key)
    if not rows:
        return None
    id = _uuid(rows[0][0])
    if rows[0][1] != sha256:
        raise UploadConflict(key, id)
    return id


def _insert(
    asked: Upload, key: str, id: UUID, checked: Checked, rows: Sequence[Mapping[str, Any]]
) -> Steps[tuple[str, UUID]]:
    job = {
        "file_job_id": str(id),
        "idempotency_key": key,
        "merchant_id": asked.merchant_id,
        "notify_mail": asked.notify_mail,
        "notify_webhook": asked.notify_webhook,
        "archive_name": asked.file,
        "archive_sha256": checked.archive_sha256,
        "archive_size_bytes": checked.archive_size_bytes,
    }
    found = yield _INSERT, (asked.tenant, json.dumps(job), json.dumps(rows), as_headers({}))
    return found[0][0], _uuid(found[0][1])


def _uploaded(id: UUID, checked: Checked, *, already_existed: bool) -> Uploaded:
    return Uploaded(id, len(checked.lines), checked.files, checked.archive_sha256, already_existed)


def _uuid(value: UUID | str) -> UUID:
    return value if isinstance(value, UUID) else UUID(value)  # psycopg2 knows no uuid unless it was told
