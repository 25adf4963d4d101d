"""A wire to PostgreSQL that can be cut: everything passes, until the reply to some statement is lost.

`lose_reply` picks one connection: the next thing that the server says on it is thrown away, and both sides are closed.
The client cannot know whether its statement (a claim, a settle, a COMMIT) has happened.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from psycopg import conninfo

CHUNK_BYTES = 65_536
SOCKET_NAME = ".s.PGSQL.5432"
ACCEPT_STEPS = 5  # of the event loop, from an accepted connection to the task that has it


class _Wire:
    """One connection. losing: the next reply does not arrive."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client, self.server = client, server
        self.losing = False

    def close(self) -> None:
        self.client.close()
        self.server.close()


class Proxy:
    """Listens on a Unix socket in a directory of its own and passes everything on to the server of a DSN."""

    def __init__(self, directory: Path, dsn: str, *, seed: int = 0) -> None:
        self._directory = directory
        self._target = conninfo.conninfo_to_dict(dsn)
        self._wires: set[_Wire] = set()
        self._connections: set[asyncio.Task[None] | None] = set()
        self._chance = random.Random(seed)
        self._words: bytes | None = None
        self.cuts = 0

    @property
    def dsn(self) -> str:
        """The same database, through this wire; a Unix socket is never encrypted."""
        there = {**self._target, "host": str(self._directory), "port": "5432"}
        there.pop("hostaddr", None)
        return conninfo.make_conninfo("", **there)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(self._connection, self._directory / SOCKET_NAME)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for sock in self._server.sockets:
            asyncio.get_running_loop().remove_reader(sock.fileno())  # close() alone would leak what it accepts just now
        for _ in range(ACCEPT_STEPS):
            await asyncio.sleep(0)
        self._server.close()
        ending = [task for task in self._connections if task is not None]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    def lose_reply(self) -> bool:
        """Cut one connection at the server's next word; False when there is none."""
        wires = [wire for wire in self._wires if not wire.losing]
        if wires:
            self._chance.choice(wires).losing = True
        return bool(wires)

    def lose_reply_to(self, words: bytes) -> None:
        """Lose the reply to the next thing that a client says with these words in it, once."""
        self._words = words

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(asyncio.current_task())
        writers = [writer]
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):  # asyncio reports a handler that is cancelled
                server_reader, server_writer = await self._connect()
                writers.append(server_writer)
                await self._pass_on(_Wire(writer, server_writer), reader, server_reader)
        finally:
            await _close(writers)
            self._connections.discard(asyncio.current_task())

    async def _pass_on(self, wire: _Wire, client: asyncio.StreamReader, server: asyncio.StreamReader) -> None:
        self._wires.add(wire)
        try:
            await asyncio.gather(self._up(wire, client), self._down(wire, server), return_exceptions=True)
        finally:
            self._wires.discard(wire)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host = str(self._target.get("hostaddr") or self._target.get("host") or "/var/run/postgresql")
        port = int(self._target.get("port") or 5432)
        if host.startswith("/"):
            return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        return await asyncio.open_connection(host, port)

    async def _up(self, wire: _Wire, client: asyncio.StreamReader) -> None:
        """What the client says."""
        with contextlib.suppress(OSError):
            while said := await client.read(CHUNK_BYTES):
                if self._words is not None and self._words in said:
                    self._words, wire.losing = None, True
                wire.server.write(said)
                await wire.server.drain()
        wire.close()

    async def _down(self, wire: _Wire, server: asyncio.StreamReader) -> None:
        """What the server answers."""
        with contextlib.suppress(OSError):
            while said := await server.read(CHUNK_BYTES):
                if wire.losing:
                    self.cuts += 1
                    break
                wire.client.write(said)
                await wire.client.drain()
        wire.close()


async def _close(writers: Sequence[asyncio.StreamWriter]) -> None:
    """The event loop closes a socket one step later, and may be about to end."""
    for writer in writers:
        writer.close()
    for writer in writers:
        with contextlib.suppress(OSError):
            await writer.wait_closed()
