"""A proxy in front of PostgreSQL that can lose a reply: the server has done the work, the client never hears of it.

`proxied(dsn)` gives a proxy on a Unix socket of its own and the DSN that leads through it. `lose_reply_to(marker)`
arms it: the next client message that contains the marker reaches the server whole, the reply is read up to
ReadyForQuery (so the transaction has ended), and then the client's connection is cut instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

from tests.support.scratch import scratch

CHUNK_BYTES = 65_536
READY_FOR_QUERY = b"Z"
PORT = 5432

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Proxy:
    """Passes bytes on, until it is told to lose a reply. replies: how often the server was ready for the next."""

    def __init__(self, connect: Callable[[], Awaitable[Streams]]) -> None:
        self._connect = connect
        self._marker: bytes | None = None
        self.losses = 0
        self.replies = 0

    def lose_reply_to(self, marker: bytes) -> None:
        """Lose the reply to the next message that contains the marker; only that one."""
        self._marker = marker

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await self._connect()
        losing = asyncio.Event()
        up = asyncio.create_task(self._upward(reader, server_writer, losing))
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._downward(server_reader, writer, losing)
        finally:
            up.cancel()
            for one in (writer, server_writer):
                one.close()

    async def _upward(self, client: asyncio.StreamReader, server: asyncio.StreamWriter, losing: asyncio.Event) -> None:
        with suppress(ConnectionError):
            while data := await client.read(CHUNK_BYTES):
                if self._marker is not None and self._marker in data:
                    self._marker = None
                    losing.set()
                server.write(data)
                await server.drain()
            server.close()

    async def _downward(
        self, server: asyncio.StreamReader, client: asyncio.StreamWriter, losing: asyncio.Event
    ) -> None:
        """Message by message, because the end of a transaction has to be recognised."""
        while True:
            head = await server.readexactly(5)
            rest = await server.readexactly(int.from_bytes(head[1:], "big") - 4)
            self.replies += head[:1] == READY_FOR_QUERY
            if losing.is_set():
                if head[:1] == READY_FOR_QUERY:
                    self.losses += 1
                    return
                continue
            client.write(head + rest)
            await client.drain()


@asynccontextmanager
async def proxied(dsn: str) -> AsyncIterator[tuple[Proxy, str]]:
    """A running proxy, and the DSN of the same database through it."""
    proxy = Proxy(_connector(dsn))
    with scratch("redrive-proxy-") as directory:
        place = directory / f".s.PGSQL.{PORT}"
        running: set[asyncio.Task[None]] = set()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            running.add(asyncio.ensure_future(proxy.serve(reader, writer)))

        server = await asyncio.start_unix_server(accept, place)
        try:
            yield proxy, make_conninfo(dsn, host=str(directory), port=PORT, hostaddr="")
        finally:
            server.close()
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)


def _connector(dsn: str) -> Callable[[], Awaitable[Streams]]:
    with psycopg.connect(dsn) as connection:
        host, port = connection.info.host, connection.info.port
    if host.startswith("/"):
        place = Path(host) / f".s.PGSQL.{port}"
        return lambda: asyncio.open_unix_connection(place)
    return lambda: asyncio.open_connection(host, port)
