"""What a file says that it is, by its suffix or the CSV, and what its first bytes show that it is.

An evidence file is a PDF, a picture (PNG, JPEG, TIFF) or a text (TXT, CSV). Everything else is refused, archives within
the archive too. Only the begin of a file is looked at: whether a PDF opens is for the Case API to find out.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Final

HEAD_BYTES: Final = 4096


class FileType(StrEnum):
    PDF = "pdf"
    PNG = "png"
    JPEG = "jpeg"
    TIFF = "tiff"
    TXT = "txt"
    CSV = "csv"


MEDIA_TYPES: Final[Mapping[FileType, str]] = {
    FileType.PDF: "application/pdf",
    FileType.PNG: "image/png",
    FileType.JPEG: "image/jpeg",
    FileType.TIFF: "image/tiff",
    FileType.TXT: "text/plain",
    FileType.CSV: "text/csv",
}
_BY_NAME: Final[Mapping[str, FileType]] = {
    **{one.value: one for one in FileType},
    "jpg": FileType.JPEG,
    "tif": FileType.TIFF,
}
_TEXTS: Final = (FileType.TXT, FileType.CSV)
# First bytes, and what a file that begins with them is.
_SIGNATURES: Final[tuple[tuple[bytes, str], ...]] = (
    (b"%PDF-", FileType.PDF),
    (b"\x89PNG\r\n\x1a\n", FileType.PNG),
    (b"\xff\xd8\xff", FileType.JPEG),
    (b"II*\x00", FileType.TIFF),
    (b"MM\x00*", FileType.TIFF),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"PK\x05\x06", "a ZIP archive"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"BZh", "a bzip2 archive"),
    (b"\xfd7zXZ\x00", "an xz archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"Rar!\x1a\x07", "a RAR archive"),
    (b"MZ", "a Windows program"),
    (b"\x7fELF", "a program"),
    (b"GIF8", "a GIF picture"),
    (b"RIFF", "a RIFF file"),
    (b"\xd0\xcf\x11\xe0", "an old Office document"),
    (b"{\\rtf", "an RTF document"),
)
_BOMS: Final = (b"\xff\xfe", b"\xfe\xff")
_CONTROL: Final = frozenset(range(32)) - {9, 10, 12, 13}  # tab, line feed, form feed, carriage return
ALLOWED: Final = ", ".join(sorted(_BY_NAME))


def type_of_suffix(name: str) -> FileType | None:
    return _BY_NAME.get(PurePosixPath(name).suffix.removeprefix(".").lower())


def type_named(text: str) -> FileType | None:
    """A type as a line of the CSV declares it, such as pdf or .JPG."""
    return _BY_NAME.get(text.strip().removeprefix(".").lower())


def fault_of_content(head: bytes, declared: FileType) -> str | None:
    """Why a file that begins so is not what it is declared to be; None where it may be."""
    real = _signed(head)
    if declared in _TEXTS:
        if real is None and _is_text(head):
            return None
        found = real or "no text"
    else:
        if real == declared:
            return None
        found = real or "of no known type"
    return f"it is declared as {declared} and is {found}"


def _signed(head: bytes) -> str | None:
    return next((what for signature, what in _SIGNATURES if head.startswith(signature)), None)


def _is_text(head: bytes) -> bool:
    """Any encoding that the CSV may have: UTF-16 by its byte order mark, else bytes without control characters."""
    if head.startswith(_BOMS):
        return True
    return not _CONTROL.intersection(head)
