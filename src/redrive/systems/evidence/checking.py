"""Everything that is checked before an upload stores anything: the archive, the CSV, and each file to its last byte.

All problems are reported at once; only an archive that cannot be trusted as a whole, or has no usable CSV, is refused
for that alone. Memory is bounded by the directory of the archive and by the CSV, not by the files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from redrive.kit.statements import shown
from redrive.systems.evidence.archive import Archive, Member, open_archive
from redrive.systems.evidence.file_types import HEAD_BYTES, FileType, fault_of_content
from redrive.systems.evidence.manifest import Line, cross_check, read_manifest
from redrive.systems.evidence.problems import Problems, UploadRefused, refused
from redrive.systems.evidence.upload_limits import UploadLimits

HASH_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A file that was read to its end. type: what it is declared to be, and begins as."""

    member: Member
    type: FileType
    sha256: str


@dataclass(frozen=True, slots=True)
class Checked:
    """What an archive holds. files: of each line, in the order of its names."""

    archive_sha256: str
    archive_size_bytes: int
    lines: Sequence[tuple[Line, Sequence[CheckedFile]]]

    @property
    def files(self) -> int:
        return sum(len(files) for _, files in self.lines)


def check(archive: Path, limits: UploadLimits | None = None, *, name: str | None = None) -> Checked:
    """Everything that `upload` checks, and nothing stored. UploadRefused has all problems. name: as in `Upload`."""
    with checked_archive(archive, limits or UploadLimits(), name or archive.name) as (checked, _):
        return checked


@contextmanager
def checked_archive(path: Path, limits: UploadLimits, file: str) -> Iterator[tuple[Checked, Archive]]:
    problems = Problems()
    with open_archive(path, limits, problems, name=file) as archive:
        problems.raise_any()  # members that may not be are not read
        manifest, others = _manifest_of(archive, limits)
        lines = read_manifest(b"".join(archive.read(manifest)), manifest.name, limits, problems)
        cross_check(lines, [one.name for one in others], manifest.name, problems)
        files = _checked_files(archive, others, lines, manifest.name, problems)
        problems.raise_any()
        by_line = [(line, [files[one.name] for one in line.files]) for line in lines]
        yield Checked(_sha256(path), path.stat().st_size, by_line), archive


def _manifest_of(archive: Archive, limits: UploadLimits) -> tuple[Member, Sequence[Member]]:
    """The one CSV at the top of the archive; a CSV in a folder is evidence."""
    found = [one for one in archive.members if "/" not in one.name and one.name.lower().endswith(".csv")]
    if not found:
        raise refused(
            archive.file, "MANIFEST_MISSING", "it has no CSV at its top; one must name the files of each case."
        )
    if len(found) > 1:
        names = ", ".join(shown(one.name) for one in found[:5])
        detail = f"it has {len(found)} CSV files at its top ({names}); exactly 1 may be, others belong in a folder."
        raise refused(archive.file, "MANIFEST_SEVERAL", detail)
    if found[0].size_bytes > limits.manifest_bytes_max:
        detail = f"it has {found[0].size_bytes} bytes; at most {limits.manifest_bytes_max} may be."
        raise refused(found[0].name, "MANIFEST_TOO_LARGE", detail)
    return found[0], [one for one in archive.members if one is not found[0]]


def _checked_files(
    archive: Archive, members: Sequence[Member], lines: Sequence[Line], manifest: str, problems: Problems
) -> Mapping[str, CheckedFile]:
    named = {one.name: (line.number, one.type) for line in lines for one in line.files}
    found: dict[str, CheckedFile] = {}
    for member in members:
        if member.name not in named:
            continue  # reported as not mentioned
        number, declared = named[member.name]
        try:
            if (fault := _fault_of(archive, member, declared)) is not None:
                problems.add(manifest, number, *fault)
            else:
                digest = hashlib.sha256()
                for chunk in archive.read(member):
                    digest.update(chunk)
                found[member.name] = CheckedFile(member, declared, digest.hexdigest())
        except UploadRefused as error:
            for one in error.problems:
                problems.add(one.file, number, one.rule, one.detail)
    return found


def _fault_of(archive: Archive, member: Member, declared: FileType) -> tuple[str, str] | None:
    if member.size_bytes == 0:
        return "FILE_EMPTY", f"{shown(member.name)} has 0 bytes; a file must have at least 1."
    fault = fault_of_content(archive.head(member, HEAD_BYTES), declared)
    return None if fault is None else ("INVALID_FORMAT", f"{shown(member.name)}: {fault}.")


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as opened:
        while chunk := opened.read(HASH_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
