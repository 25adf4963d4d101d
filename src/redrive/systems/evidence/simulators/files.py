"""Files below a directory, read as `stored_file.StoredFiles`: what a proof and a demo store by themselves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path


class FileMissing(Exception):
    code = "S3_NOT_FOUND"


@dataclass(frozen=True)
class Directory:
    place: Path

    async def chunks(self, key: str) -> AsyncIterator[bytes]:
        try:
            yield await asyncio.to_thread((self.place / key).read_bytes)
        except FileNotFoundError:
            raise FileMissing(key) from None
