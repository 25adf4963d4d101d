"""Where the files of uploads are kept: an S3-compatible bucket or a local directory.

An object is written whole or not at all, and its sha256 is computed from the bytes on their way; it is compared again
before each attempt to attach it (`case_api.py`). Objects of one upload are below `uploads/<file_job_id>/`, so that what
no job refers to can be found and removed (`sweep.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit
from uuid import UUID

import obstore
from obstore.exceptions import BaseError
from obstore.store import LocalStore, MemoryStore, S3Store

from redrive.errors import SettingsError, Unreachable

PREFIX: Final = "uploads"
PART_BYTES: Final = 5 * 1024 * 1024  # the least that S3 takes for a part but the last
READ_BYTES: Final = 256 * 1024
_NEXT: Final = "check [evidence] storage, its credentials and whether it answers"


class StoredFileMissing(Exception):
    """There is no object of that key."""

    code = "S3_NOT_FOUND"


class StoredFile(NamedTuple):
    """What `put` has written. sha256: hexadecimal, of the bytes on their way."""

    key: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class StoredObject:
    """As `objects` lists it. file_job_id: None where the key is of another form."""

    key: str
    file_job_id: UUID | None
    modified_at: datetime


@dataclass(frozen=True, eq=False)
class Storage:
    """store: of obstore. root: the directory of a local one."""

    store: LocalStore | MemoryStore | S3Store
    root: Path | None = None

    def put(self, key: str, chunks: Iterable[bytes]) -> StoredFile:
        """Write an object; memory is bounded by two parts. An error of `chunks` leaves no object and is raised."""
        counted = _Counted(chunks)
        with _reachable():
            obstore.put(self.store, key, iter(counted), chunk_size=PART_BYTES, max_concurrency=1)
        return StoredFile(key, counted.size, counted.digest.hexdigest())

    def remove(self, keys: Iterable[str]) -> None:
        """Objects that are gone already are no error."""
        for key in keys:
            with _reachable(), suppress(FileNotFoundError):
                obstore.delete(self.store, key)

    def objects(self) -> Iterator[StoredObject]:
        """All objects of uploads, in the order of the store."""
        with _reachable():
            for page in obstore.list(self.store, prefix=f"{PREFIX}/", chunk_size=500):
                for one in page:
                    yield StoredObject(one["path"], _job_of(one["path"]), one["last_modified"])

    def remove_partial(self, *, before: datetime) -> int:
        """Files of a local store whose writer died. obstore does not list them; S3 has a rule of its own for parts."""
        removed = 0
        for path in [] if self.root is None else sorted((self.root / PREFIX).rglob("*#*")):
            if path.is_file() and path.stat().st_mtime < before.timestamp():
                path.unlink(missing_ok=True)
                removed += 1
        return removed

    async def chunks(self, key: str) -> AsyncIterator[bytes]:
        """The bytes of an object. StoredFileMissing where there is none."""
        with _reachable():
            try:
                found = await obstore.get_async(self.store, key)
            except FileNotFoundError:
                raise StoredFileMissing(f"There is no object {key}.") from None
            async for chunk in found.stream(min_chunk_size=READ_BYTES):
                yield bytes(chunk)


def key_of(file_job_id: UUID, artifact_id: UUID) -> str:
    """Names of files are not in keys: they are a merchant's."""
    return f"{PREFIX}/{file_job_id}/{artifact_id}"


def storage_of(url: str, options: Mapping[str, Any] | None = None) -> Storage:
    """file:///directory, or s3://bucket/prefix with options of obstore's S3Store (credentials from the environment)."""
    parts = urlsplit(url)
    try:
        if parts.scheme == "file" and parts.path and not parts.netloc and not options:
            root = Path(unquote(parts.path))
            return Storage(LocalStore(root, mkdir=True, automatic_cleanup=True), root)
        if parts.scheme == "s3" and parts.netloc:
            prefix = parts.path.strip("/") or None
            return Storage(S3Store(parts.netloc, prefix=prefix, **(options or {})))
    except (BaseError, OSError, ValueError, TypeError) as error:
        raise SettingsError(f"The storage cannot be used ({type(error).__name__}).", next=_NEXT) from error
    raise SettingsError(
        "The storage has an address that is not known.", next="write file:///directory or s3://bucket/prefix"
    )


class _Counted:
    """Hashes chunks as they pass."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks, self.digest, self.size = chunks, hashlib.sha256(), 0

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            self.digest.update(chunk)
            self.size += len(chunk)
            yield chunk


def _job_of(key: str) -> UUID | None:
    parts = key.split("/")
    try:
        return UUID(parts[1]) if len(parts) == 3 else None
    except ValueError:
        return None


@contextmanager
def _reachable() -> Iterator[None]:
    """An error of the store, without its text: that has addresses, and may have more."""
    try:
        yield
    except BaseError as error:
        raise Unreachable(f"The storage refuses or does not answer ({type(error).__name__}).", next=_NEXT) from error
