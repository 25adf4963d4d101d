"""Logs that outlive a killed writer: one JSON object a line, on disk before it is acted upon.

A line that a kill has cut never happened: the next writer ends it, and readers leave it out.
"""

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Line = dict[str, Any]


class Journal:
    """`write` returns when the line is on disk, unless `durable=False`."""

    def __init__(self, path: Path, *, durable: bool = True) -> None:
        self._durable = durable
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        if path.stat().st_size and path.read_bytes()[-1:] != b"\n":
            os.write(self._file, b"\n")

    def write(self, **values: Any) -> None:
        os.write(self._file, _encoded(values))
        if self._durable:
            os.fsync(self._file)

    def close(self) -> None:
        os.close(self._file)


class SharedJournal(Journal):
    """For one event loop: writers that come during a flush share the next one."""

    def __init__(self, path: Path, *, durable: bool = True) -> None:
        super().__init__(path, durable=durable)
        self._lines: list[bytes] = []
        self._flushed: asyncio.Future[None] | None = None
        self._flushing = asyncio.Lock()

    async def append(self, **values: Any) -> None:
        """Keeps the order of the calls; returns when the line is on disk."""
        self._lines.append(_encoded(values))
        if self._flushed is None:
            self._flushed = asyncio.get_running_loop().create_future()
        mine = self._flushed
        async with self._flushing:
            if not mine.done():
                await self._flush(mine)

    async def _flush(self, flushed: asyncio.Future[None]) -> None:
        lines, self._lines, self._flushed = self._lines, [], None
        os.write(self._file, b"".join(lines))
        if self._durable:
            await asyncio.to_thread(os.fsync, self._file)
        flushed.set_result(None)


def read(path: Path) -> Iterator[Line]:
    if not path.exists():
        return
    for line in path.read_bytes().split(b"\n"):
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value


def _encoded(values: Line) -> bytes:
    return json.dumps(values, separators=(",", ":")).encode() + b"\n"
