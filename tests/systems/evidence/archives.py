"""Archives for the tests: a good one, and hostile ones that each break one rule."""

from __future__ import annotations

import io
import stat
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from uuid import UUID

CASE: Final = UUID("7d0c0a3e-6d3b-4f0e-9a0e-2f7a3c1b5e11")
OTHER: Final = UUID("0b7f6f0c-52ab-4b0a-8a5e-d5a1f2f3c4d5")
PDF: Final = b"%PDF-1.7\nan invoice\n"
PNG: Final = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
LINES: Final = f"case_id,files\n{CASE},a.pdf\n"
FILES: Final[Mapping[str, bytes]] = {"a.pdf": PDF}


def zipped(files: Mapping[str, bytes] = FILES, lines: str | bytes | None = LINES, **options: int) -> bytes:
    """An archive; lines: of its CSV, None = no CSV."""
    written, method = io.BytesIO(), options.get("method", zipfile.ZIP_DEFLATED)
    members = files if lines is None else {"cases.csv": lines, **files}
    with zipfile.ZipFile(written, "w") as archive:
        for name, data in members.items():  # without the time: the same bytes in each process
            archive.writestr(zipfile.ZipInfo(name), data, compress_type=method)
    return written.getvalue()


def named(*files: str, case: UUID = CASE) -> str:
    return f"case_id,files\n{case},{'|'.join(files)}\n"


def only(name: str, data: bytes = PDF) -> bytes:
    """An archive with this member beside a good file, whatever its name."""
    return zipped({**FILES, name: data})


def with_info(change: Callable[[zipfile.ZipInfo], None], data: bytes = PDF) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("cases.csv", LINES)
        info = zipfile.ZipInfo("a.pdf")
        change(info)
        archive.writestr(info, data)
    return written.getvalue()


def special(kind: int) -> bytes:
    def change(info: zipfile.ZipInfo) -> None:
        info.create_system, info.external_attr = 3, (kind | 0o777) << 16

    return with_info(change, b"/etc/passwd")


def patched(data: bytes, signature: bytes, offset: int, value: bytes) -> bytes:
    """Bytes changed behind every occurrence of a record's signature, in those of the member a.pdf only."""
    changed = bytearray(data)
    at = data.find(signature)
    while at >= 0:
        if data[at : at + 100].find(b"a.pdf") > 0:
            changed[at + offset : at + offset + len(value)] = value
        at = data.find(signature, at + 1)
    return bytes(changed)


def encrypted() -> bytes:
    data = patched(zipped(), b"PK\x03\x04", 6, b"\x01\x00")
    return patched(data, b"PK\x01\x02", 8, b"\x01\x00")


def bad_crc() -> bytes:
    return patched(patched(zipped(), b"PK\x03\x04", 14, b"abcd"), b"PK\x01\x02", 16, b"abcd")


def damaged_data() -> bytes:
    data = zipped()
    at = data.index(b"a.pdf") + len("a.pdf")
    return data[:at] + b"\xff\xff\xff\xff" + data[at + 4 :]


def longer_than_declared() -> bytes:
    """The directory and the header declare 5 bytes of the 20 that the data unpack to."""
    short = struct.pack("<L", 5)
    return patched(patched(zipped(), b"PK\x03\x04", 22, short), b"PK\x01\x02", 24, short)


def shorter_than_declared() -> bytes:
    long = struct.pack("<L", 500)
    return patched(patched(zipped(), b"PK\x03\x04", 22, long), b"PK\x01\x02", 24, long)


def overlapping(copies: int = 50) -> bytes:
    """A bomb whose members are all the same bytes of the file."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("cases.csv", LINES)
        archive.writestr("a.pdf", PDF + bytes(100_000))
        first = archive.getinfo("a.pdf")
        for number in range(copies):
            info = zipfile.ZipInfo(f"{number:03}.pdf")
            info.header_offset, info.CRC = first.header_offset, first.CRC
            info.compress_type, info.compress_size, info.file_size = 8, first.compress_size, first.file_size
            archive.filelist.append(info)
    return written.getvalue()


def bomb(unpacked: int, piece: bytes = bytes(1024 * 1024)) -> bytes:
    """A member of zeros, 1,000 times smaller packed."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        archive.writestr("cases.csv", LINES)
        with archive.open("a.pdf", "w", force_zip64=True) as member:
            member.write(PDF)
            for _ in range(unpacked // len(piece)):
                member.write(piece)
    return written.getvalue()


def declared_directory(members: int, size: int) -> bytes:
    """An end record that declares a directory which is not there."""
    return b"PK\x03\x04" + struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, members, members, size, 0, 0)


def many_members(count: int) -> bytes:
    return zipped({**FILES, **{f"x/{number}.txt": b"x" for number in range(count)}}, method=zipfile.ZIP_STORED)


def nested() -> bytes:
    return zipped({"a.pdf": zipped()})


def written(folder: Path, data: bytes, name: str = "evidence.zip") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


# The rule that refuses each, by what is wrong with it. tests/systems/evidence/test_hostile.py has bounds that fit.
HOSTILE: Final[Mapping[str, tuple[str, Callable[[], bytes]]]] = {
    "no zip at all": ("NOT_A_ZIP", lambda: b"hello" * 100),
    "no bytes": ("NOT_A_ZIP", lambda: b""),
    "cut off in a member": ("ARCHIVE_TRUNCATED", lambda: zipped()[:60]),
    "cut off in the end record": ("ARCHIVE_TRUNCATED", lambda: zipped()[:-4]),
    "cut off in front": ("ARCHIVE_DAMAGED", lambda: zipped()[20:]),
    "a program in front": ("ARCHIVE_DAMAGED", lambda: b"MZ" + bytes(98) + zipped()),
    "bytes behind the end": ("ARCHIVE_DAMAGED", lambda: zipped() + b"more"),
    "no members": ("ARCHIVE_EMPTY", lambda: zipped({}, None)),
    "folders only": ("ARCHIVE_EMPTY", lambda: zipped({"a/": b"", "b/": b""}, None)),
    "too many members": ("TOO_MANY_MEMBERS", lambda: many_members(300)),
    "a directory of 3 GB declared": ("DIRECTORY_TOO_LARGE", lambda: declared_directory(1, 3_000_000_000)),
    "a count of members declared": ("TOO_MANY_MEMBERS", lambda: declared_directory(60_000, 100)),
    "a bomb by ratio": ("COMPRESSION_RATIO", lambda: bomb(30 * 2**20)),
    "a bomb by size": ("FILE_TOO_LARGE", lambda: bomb(200 * 2**20)),
    "a bomb of many members": (
        "TOTAL_TOO_LARGE",
        lambda: zipped({f"x/{one}.pdf": bytes(2**20) for one in range(150)}),
    ),
    "a bomb of overlapping members": ("MEMBERS_OVERLAP", overlapping),
    "an archive in the archive": ("INVALID_FORMAT", nested),
    "a path with ..": ("PATH_OUTSIDE", lambda: only("../../etc/passwd")),
    "a path with .. inside": ("PATH_OUTSIDE", lambda: only("x/../../a.pdf")),
    "an absolute path": ("PATH_OUTSIDE", lambda: only("/etc/passwd")),
    "a drive letter": ("PATH_OUTSIDE", lambda: only("C:/Windows/a.pdf")),
    "a backslash": ("PATH_OUTSIDE", lambda: only("..\\..\\a.pdf")),
    "an empty part": ("NAME_INVALID", lambda: only("x//a.pdf")),
    "a line feed in a name": ("NAME_INVALID", lambda: only("x\na.pdf")),
    "a right-to-left mark in a name": ("NAME_INVALID", lambda: only("a\u202efdp.exe")),
    "a name of 2,000 bytes": ("NAME_INVALID", lambda: only("x" * 2000 + ".pdf")),
    "forty folders": ("NAME_INVALID", lambda: only("x/" * 40 + "a.pdf")),
    "a symbolic link": ("NOT_A_FILE", lambda: special(stat.S_IFLNK)),
    "a device": ("NOT_A_FILE", lambda: special(stat.S_IFCHR)),
    "a pipe": ("NOT_A_FILE", lambda: special(stat.S_IFIFO)),
    "a folder with data": ("NOT_A_FILE", lambda: only("x/", PDF)),
    "a name twice, by case": ("NAME_DUPLICATE", lambda: only("A.PDF")),
    "a name twice, by Unicode": ("NAME_DUPLICATE", lambda: zipped({"caf\u00e9.pdf": PDF, "cafe\u0301.pdf": PDF})),
    "a file that is a folder": ("NAME_DUPLICATE", lambda: only("A.pdf/b.pdf")),
    "encrypted": ("ENCRYPTED", encrypted),
    "an unknown method": ("METHOD_UNKNOWN", lambda: zipped(method=zipfile.ZIP_LZMA)),
    "a wrong checksum": ("FILE_DAMAGED", bad_crc),
    "damaged data": ("FILE_DAMAGED", damaged_data),
    "longer than declared": ("FILE_DAMAGED", longer_than_declared),
    "shorter than declared": ("FILE_DAMAGED", shorter_than_declared),
}
