"""A proxy in front of PostgreSQL that can lose a reply: the server has done the work, the client is not told.

`lose_reply` cuts a connection at the server's next bytes: the client cannot know whether its statement has happened.
`lose_reply_to` waits for the end of the reply to a statement, so that its transaction has ended.
"""

import asyncio
import contextlib
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from psycopg import conninfo

CHUNK_BYTES = 65_536
SOCKET_NAME = ".s.PGSQL.5432"
ACCEPT_STEPS = 5  # of the event loop, from an accepted connection to the task that has it
HEAD_BYTES = 5  # of a message of the protocol: its type, its length
READY_FOR_QUERY = ord("Z")


class _Wire:
    """cut: at the next bytes of the server. losing: a reply is kept back until it has ended."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client, self.server = client, server
        self.cut = self.losing = False
        self._rest = b""

    def close(self) -> None:
        self.client.close()
        self.server.close()

    def replies(self, said: bytes) -> int:
        """How many replies end in these bytes: with each the server is ready for the next query."""
        said = self._rest + said
        start = ended = 0
        while len(said) >= start + HEAD_BYTES:
            end = start + 1 + int.from_bytes(said[start + 1 : start + HEAD_BYTES], "big")
            if len(said) < end:
                break
            ended += said[start] == READY_FOR_QUERY
            start = end
        self._rest = said[start:]
        return ended


class Proxy:
    """Listens on a Unix socket. replies: how often the server was ready for the next query."""

    def __init__(self, directory: Path, dsn: str, *, seed: int = 0) -> None:
        self._directory = directory
        self._target = conninfo.conninfo_to_dict(dsn)
        self._wires: set[_Wire] = set()
        self._connections: set[asyncio.Task[None] | None] = set()
        self._random = random.Random(seed)
        self._words: bytes | None = None
        self.cuts = self.replies = 0

    @property
    def dsn(self) -> str:
        """Through this proxy; a Unix socket is never encrypted."""
        target = {**self._target, "host": str(self._directory), "port": "5432"}
        target.pop("hostaddr", None)
        return conninfo.make_conninfo("", **target)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(self._connection, self._directory / SOCKET_NAME)
        return self

    async def __aexit__(self, *_: object) -> None:
        await close_server(self._server)
        ending = [task for task in self._connections if task is not None]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    def lose_reply(self) -> bool:
        """False when there is no connection."""
        wires = [wire for wire in self._wires if not wire.cut]
        if wires:
            self._random.choice(wires).cut = True
        return bool(wires)

    def lose_reply_to(self, words: bytes) -> None:
        """To the next statement with these words, once."""
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
            await close_writers(writers)
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
        with contextlib.suppress(OSError):
            while said := await client.read(CHUNK_BYTES):
                if self._words is not None and self._words in said:
                    self._words, wire.losing = None, True
                wire.server.write(said)
                await wire.server.drain()
        wire.close()

    async def _down(self, wire: _Wire, server: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while said := await server.read(CHUNK_BYTES):
                ended = wire.replies(said)
                self.replies += ended
                if wire.cut or (wire.losing and ended):
                    self.cuts += 1
                    break
                if not wire.losing:
                    wire.client.write(said)
                    await wire.client.drain()
        wire.close()


async def close_server(server: asyncio.Server) -> None:
    """`close()` alone would leak what it accepts just now."""
    for sock in server.sockets:
        asyncio.get_running_loop().remove_reader(sock.fileno())
    for _step in range(ACCEPT_STEPS):
        await asyncio.sleep(0)
    server.close()


async def close_writers(writers: Sequence[asyncio.StreamWriter]) -> None:
    """The event loop closes a socket one step later, and may be about to end."""
    for writer in writers:
        writer.close()
    for writer in writers:
        with contextlib.suppress(OSError):
            await writer.wait_closed()
