"""The end record of a ZIP and the extents of its members, checked before the standard library reads the directory.

The library allocates what the end record declares and trusts where members begin. So the declared size of the directory
is bounded first; there may be nothing before the first member and nothing behind the directory, and no two members may
share bytes (a bomb of overlapping members has a harmless size on disk).
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final

from redrive.systems.evidence.problems import UploadRefused, refused
from redrive.systems.evidence.upload_limits import UploadLimits

_END: Final = struct.Struct("<4s4H2LH")
_END_64: Final = struct.Struct("<4sQ2H2L4Q")
_LOCATOR_64: Final = struct.Struct("<4sLQL")
_LOCAL: Final = struct.Struct("<4s5H3L2H")
_COMMENT_MAX: Final = 65_535


@dataclass(frozen=True, slots=True)
class _End:
    """What the end record declares. offset: where the record itself begins."""

    members: int
    directory_bytes: int
    directory_offset: int
    offset: int


def check_directory(opened: BinaryIO, file: str, limits: UploadLimits) -> None:
    """UploadRefused unless the file is one whole ZIP whose directory is within the bounds."""
    size = opened.seek(0, 2)
    if size > limits.archive_bytes_max:
        raise refused(file, "ARCHIVE_TOO_LARGE", f"it has {size} bytes; at most {limits.archive_bytes_max} may be.")
    end = _end_record(opened, size, file)
    if end.directory_bytes > limits.directory_bytes_max:
        detail = f"its directory has {end.directory_bytes} bytes; at most {limits.directory_bytes_max} may be."
        raise refused(file, "DIRECTORY_TOO_LARGE", detail)
    if end.members > limits.members_max:
        raise refused(file, "TOO_MANY_MEMBERS", f"it has {end.members} members; at most {limits.members_max} may be.")
    if end.members == 0:
        raise refused(file, "ARCHIVE_EMPTY", "it has no file; it must have a CSV and the files that it names.")
    if end.directory_offset + end.directory_bytes != end.offset:
        detail = f"its directory ends at byte {end.directory_offset + end.directory_bytes}, and not at {end.offset}."
        raise refused(file, "ARCHIVE_DAMAGED", detail)


def check_extents(opened: BinaryIO, file: str, infos: Sequence[zipfile.ZipInfo], directory: int) -> None:
    """UploadRefused where a member begins before the one in front of it has ended."""
    free_from = 0
    for info in sorted(infos, key=lambda one: one.header_offset):
        if info.header_offset < free_from:
            detail = f"it begins at byte {info.header_offset}, inside another member that ends at {free_from}."
            raise refused(info.filename, "MEMBERS_OVERLAP", detail)
        if not free_from and info.header_offset:
            raise refused(file, "ARCHIVE_DAMAGED", f"it has {info.header_offset} bytes before its first member.")
        free_from = _end_of(opened, file, info)
        if free_from > directory:
            detail = f"it ends at byte {free_from}, behind the begin of the directory at {directory}."
            raise refused(info.filename, "MEMBERS_OVERLAP", detail)


def _end_of(opened: BinaryIO, file: str, info: zipfile.ZipInfo) -> int:
    opened.seek(info.header_offset)
    header = opened.read(_LOCAL.size)
    if len(header) < _LOCAL.size or header[:4] != b"PK\x03\x04":
        raise refused(file, "ARCHIVE_DAMAGED", f"it has no member at byte {info.header_offset}, where one is declared.")
    *_, name_bytes, extra_bytes = _LOCAL.unpack(header)
    return info.header_offset + _LOCAL.size + int(name_bytes) + int(extra_bytes) + info.compress_size


def _end_record(opened: BinaryIO, size: int, file: str) -> _End:
    tail_bytes = min(size, _END.size + _COMMENT_MAX)
    opened.seek(size - tail_bytes)
    tail = opened.read(tail_bytes)
    found = tail.rfind(b"PK\x05\x06")
    if found < 0:
        raise _no_zip(opened, file)
    offset = size - tail_bytes + found
    if len(tail) - found < _END.size:
        raise refused(file, "ARCHIVE_TRUNCATED", f"its end record has {len(tail) - found} of {_END.size} bytes.")
    _, disk, _, on_disk, members, directory_bytes, directory_offset, comment = _END.unpack_from(tail, found)
    if found + _END.size + comment != len(tail):
        raise refused(file, "ARCHIVE_DAMAGED", f"its end record at byte {offset} is not at its end.")
    if (end_64 := _end_record_64(opened, offset, file)) is not None:
        return end_64
    if disk or on_disk != members:
        raise refused(file, "ARCHIVE_DAMAGED", "it is one part of several; the archive must be one file.")
    return _End(members, directory_bytes, directory_offset, offset)


def _end_record_64(opened: BinaryIO, end: int, file: str) -> _End | None:
    """Where its locator stands before the end record, it decides, also when the end record has all values itself."""
    at = end - _LOCATOR_64.size
    if at < _END_64.size:
        return None
    opened.seek(at)
    signature, _, offset, _ = _LOCATOR_64.unpack(opened.read(_LOCATOR_64.size))
    if signature != b"PK\x06\x07":
        return None
    opened.seek(at - _END_64.size)
    record = _END_64.unpack(opened.read(_END_64.size))
    if offset != at - _END_64.size or record[0] != b"PK\x06\x06":
        raise refused(file, "ARCHIVE_DAMAGED", "its 64-bit end record is not where it must be.")
    return _End(record[7], record[8], record[9], at - _END_64.size)


def _no_zip(opened: BinaryIO, file: str) -> UploadRefused:
    opened.seek(0)
    if opened.read(4) == b"PK\x03\x04":
        return refused(file, "ARCHIVE_TRUNCATED", "it begins as a ZIP and has no end record; it was cut off.")
    return refused(file, "NOT_A_ZIP", "it has no end record of a ZIP.")
