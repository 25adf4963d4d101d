"""Bounds of an upload. Every refusal names the bound that was passed."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from redrive.errors import SettingsError

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadLimits:
    """archive_bytes_max: of the ZIP itself. directory_bytes_max: of its directory, which is read at once.
    members_max: files and directories. file_bytes_max: of one file, unpacked. total_bytes_max: of all, unpacked.
    ratio_max: unpacked to packed, of one file and of the whole, from ratio_from_bytes on (small files of repeated text
    are packed that well). name_bytes_max: of a path, in UTF-8. manifest_bytes_max: of the CSV. lines_max: of the CSV
    without its header. line_characters_max: of one line. files_per_line_max: artifacts of one case.
    upload_seconds_max: an upload that takes longer is given up; the sweep of leftover objects waits longer than this.
    """

    archive_bytes_max: int = 4 * GIB
    directory_bytes_max: int = 16 * MIB
    members_max: int = 20_000
    file_bytes_max: int = 100 * MIB
    total_bytes_max: int = 8 * GIB
    ratio_max: int = 100
    ratio_from_bytes: int = 1 * MIB
    name_bytes_max: int = 512
    manifest_bytes_max: int = 8 * MIB
    lines_max: int = 10_000
    line_characters_max: int = 8_192
    files_per_line_max: int = 100
    upload_seconds_max: int = 6 * 3600

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if type(value) is not int or value < 1:
                raise SettingsError(f"evidence: {one.name} is {value!r}; it must be a whole number from 1.")
