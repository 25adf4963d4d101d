"""Reads a ZIP that a stranger made: every rule is checked before a byte of a file is used.

`open_archive` reads the directory and raises `UploadRefused` where it cannot be trusted as a whole; what is wrong with
single members goes to `Problems` (`member_rules.py`). `Archive.read` gives a member in chunks and never more bytes than
the directory declares, so that memory and disk stay bounded whatever the archive says. Nothing is extracted to disk.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final
from unicodedata import normalize

from redrive.systems.evidence.member_rules import check_members
from redrive.systems.evidence.problems import Problems, UploadRefused, refused
from redrive.systems.evidence.upload_limits import UploadLimits
from redrive.systems.evidence.zip_directory import check_directory, check_extents

CHUNK_BYTES: Final = 256 * 1024
_FILE_FAULTS: Final = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    OSError,
)


@dataclass(frozen=True, slots=True)
class Member:
    """A file of the archive. name: in the Unicode form NFC, as in the CSV. size_bytes: as the directory declares it;
    `Archive.read` gives exactly as many.
    """

    name: str
    size_bytes: int
    info: zipfile.ZipInfo


@dataclass(frozen=True)
class Archive:
    """file: how reports name it. members: the files, directories left out."""

    file: str
    members: Sequence[Member]
    _zip: zipfile.ZipFile

    def read(self, member: Member) -> Iterator[bytes]:
        """The bytes in chunks. UploadRefused where they do not match the declared size or checksum."""
        left = member.size_bytes
        try:
            with self._zip.open(member.info) as opened:
                while chunk := opened.read(CHUNK_BYTES):
                    left -= len(chunk)
                    yield chunk
        except _FILE_FAULTS as error:
            raise _damaged(member, f"it cannot be read to its end ({_said(error)}).") from None
        if left != 0:
            raise _damaged(member, f"{member.size_bytes} bytes are declared and {member.size_bytes - left} are there.")

    def head(self, member: Member, size: int) -> bytes:
        """The first bytes, at most `size`."""
        try:
            with self._zip.open(member.info) as opened:
                return opened.read(size)
        except _FILE_FAULTS as error:
            raise _damaged(member, f"it cannot be read ({_said(error)}).") from None


@contextmanager
def open_archive(path: Path, limits: UploadLimits, problems: Problems, *, name: str | None = None) -> Iterator[Archive]:
    """The archive, while the block lasts. name: how reports name it, the file's own name unless given."""
    file = name or path.name
    try:
        opened = path.open("rb")
    except OSError as error:
        raise refused(file, "ARCHIVE_UNREADABLE", f"it cannot be opened ({error.strerror}).") from None
    with opened:
        check_directory(opened, file, limits)
        with _zip_file(opened, file, limits) as zip_file:
            infos = zip_file.infolist()
            check_extents(opened, file, infos, zip_file.start_dir)
            check_members(infos, file, limits, problems)
            members = [Member(normalize("NFC", one.filename), one.file_size, one) for one in infos if not one.is_dir()]
            if not members:
                raise refused(file, "ARCHIVE_EMPTY", "it has no file; it must have a CSV and the files that it names.")
            yield Archive(file, members, zip_file)


def _zip_file(opened: BinaryIO, file: str, limits: UploadLimits) -> zipfile.ZipFile:
    try:
        found = zipfile.ZipFile(opened)
    except (*_FILE_FAULTS, ValueError) as error:
        raise refused(file, "ARCHIVE_DAMAGED", f"its directory cannot be read ({_said(error)}).") from None
    if len(found.infolist()) > limits.members_max:
        raise refused(
            file, "TOO_MANY_MEMBERS", f"it has {len(found.infolist())} members; at most {limits.members_max} may be."
        )
    return found


def _damaged(member: Member, detail: str) -> UploadRefused:
    return refused(member.name, "FILE_DAMAGED", detail)


def _said(error: BaseException) -> str:
    """What is wrong, without names: a library's message quotes the archive."""
    text = str(error)
    if "CRC" in text:
        return "its checksum is not the declared one"
    return {
        "BadZipFile": "its header differs from the directory",
        "EOFError": "it ends too early",
        "error": "its compressed data are damaged",
    }.get(type(error).__name__, type(error).__name__)
