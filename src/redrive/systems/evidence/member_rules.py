"""What a member of an archive may be: a plain file or directory below the archive's root, of bounded size, named once.

Every member is checked and every fault is reported. Names are compared as the strictest file system would: without
upper and lower case and in one Unicode form.
"""

from __future__ import annotations

import re
import stat
import zipfile
from collections.abc import Iterator, Sequence
from typing import Final
from unicodedata import normalize

from redrive.kit.statements import shown
from redrive.systems.evidence.problems import Problems
from redrive.systems.evidence.upload_limits import UploadLimits

DEPTH_MAX: Final = 10
_ENCRYPTED: Final = 0x1 | 0x40 | 0x2000  # the old cipher, strong encryption, a masked directory
_METHODS: Final = {zipfile.ZIP_STORED: "stored", zipfile.ZIP_DEFLATED: "deflate"}
_DRIVE: Final = re.compile(r"[A-Za-z]:")
_KINDS: Final = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}


def check_members(infos: Sequence[zipfile.ZipInfo], file: str, limits: UploadLimits, problems: Problems) -> None:
    for info in infos:
        _check_name(info, limits, problems)
        _check_kind(info, problems)
        _check_size(info, limits, problems)
    _check_repeats(infos, problems)
    _check_total(infos, file, limits, problems)


def same_name(name: str) -> str:
    """Names that some file system takes for one are equal in this form."""
    return normalize("NFKC", normalize("NFKC", name).casefold())


def fault_of_name(name: str) -> tuple[str, str] | None:
    """Rule and reason why a path must not be used; None where it may."""
    parts = name.removesuffix("/").split("/")
    if "\\" in name:
        return "PATH_OUTSIDE", "it has a backslash; folders are separated by /"
    if name.startswith("/") or _DRIVE.match(name):
        return "PATH_OUTSIDE", "it is absolute; it must be below the archive"
    if ".." in parts:
        return "PATH_OUTSIDE", "it leads outside of the archive by '..'"
    fault = _fault_of_parts(name, parts)
    return None if fault is None else ("NAME_INVALID", fault)


def _fault_of_parts(name: str, parts: Sequence[str]) -> str | None:
    if any(part in ("", ".") for part in parts):
        return "it has an empty part or '.'"
    if not name.isprintable():
        return "it has a character that is not printable"
    if "|" in name:
        return "it has a '|', which separates names in the CSV"
    if any(part != part.strip() or part.endswith(".") for part in parts):
        return "a part of it begins or ends with a space, or ends with a point"
    if len(parts) > DEPTH_MAX:
        return f"it is {len(parts)} levels deep; at most {DEPTH_MAX} may be"
    return None


def _check_name(info: zipfile.ZipInfo, limits: UploadLimits, problems: Problems) -> None:
    name = info.orig_filename
    size = len(name.encode("utf-8", "surrogatepass"))
    if size > limits.name_bytes_max:
        detail = f"its name has {size} bytes; at most {limits.name_bytes_max} may be."
        problems.add(name[:100], None, "NAME_INVALID", detail)
    elif (fault := fault_of_name(name)) is not None:
        problems.add(name, None, fault[0], f"its name is {shown(name)}; {fault[1]}.")


def _check_kind(info: zipfile.ZipInfo, problems: Problems) -> None:
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        what = _KINDS.get(kind, f"of kind {kind:#o}")
        problems.add(info.filename, None, "NOT_A_FILE", f"it is {what}; it must be a plain file.")
    elif (kind == stat.S_IFDIR) != info.is_dir() and kind:
        problems.add(
            info.filename, None, "NOT_A_FILE", "its name and its attributes disagree on whether it is a folder."
        )
    if info.flag_bits & _ENCRYPTED:
        problems.add(
            info.filename, None, "ENCRYPTED", "it is encrypted; an upload must be readable without a password."
        )
    elif info.compress_type not in _METHODS:
        allowed = " or ".join(_METHODS.values())
        detail = f"it is packed by method {info.compress_type}; it must be {allowed}."
        problems.add(info.filename, None, "METHOD_UNKNOWN", detail)


def _check_size(info: zipfile.ZipInfo, limits: UploadLimits, problems: Problems) -> None:
    if info.is_dir():
        if info.file_size or info.compress_size:
            problems.add(info.filename, None, "NOT_A_FILE", f"it is a folder with {info.file_size} bytes of its own.")
    elif info.file_size > limits.file_bytes_max:
        detail = f"it unpacks to {info.file_size} bytes; at most {limits.file_bytes_max} may be."
        problems.add(info.filename, None, "FILE_TOO_LARGE", detail)
    elif info.file_size >= limits.ratio_from_bytes and info.file_size > limits.ratio_max * info.compress_size:
        problems.add(info.filename, None, "COMPRESSION_RATIO", _ratio(info.file_size, info.compress_size, limits))


def _check_repeats(infos: Sequence[zipfile.ZipInfo], problems: Problems) -> None:
    first: dict[str, str] = {}
    folders: dict[str, str] = {}
    for info in infos:
        key = same_name(info.filename.removesuffix("/"))
        if key in first:
            problems.add(info.filename, None, "NAME_DUPLICATE", f"it is the same name as {shown(first[key])}.")
            continue
        first[key] = info.filename
        for folder in _folders(key):
            folders.setdefault(folder, info.filename)
    for folder in first.keys() & folders.keys():
        if not first[folder].endswith("/"):
            detail = f"it is a file and the folder of {shown(folders[folder])}."
            problems.add(first[folder], None, "NAME_DUPLICATE", detail)


def _folders(key: str) -> Iterator[str]:
    """A name that is too deep is refused for that alone."""
    parts = key.split("/", DEPTH_MAX)
    for depth in range(1, len(parts)):
        yield "/".join(parts[:depth])


def _check_total(infos: Sequence[zipfile.ZipInfo], file: str, limits: UploadLimits, problems: Problems) -> None:
    unpacked, packed = sum(one.file_size for one in infos), sum(one.compress_size for one in infos)
    if unpacked > limits.total_bytes_max:
        detail = f"it unpacks to {unpacked} bytes; at most {limits.total_bytes_max} may be."
        problems.add(file, None, "TOTAL_TOO_LARGE", detail)
    elif unpacked >= limits.ratio_from_bytes and unpacked > limits.ratio_max * packed:
        problems.add(file, None, "COMPRESSION_RATIO", _ratio(unpacked, packed, limits))


def _ratio(unpacked: int, packed: int, limits: UploadLimits) -> str:
    times = unpacked / max(packed, 1)
    return f"{packed} bytes unpack to {unpacked}, {times:.0f} times as many; at most {limits.ratio_max} times may be."
