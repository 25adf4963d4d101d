"""A proxy in front of a broker that loses replies, cuts connections, and counts the round trips.

A message is recognised by the name of the header that every transport sends with it. `rewrite` changes what the server
says, for a broker whose replies name its own port.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from types import TracebackType
from typing import Self

from redrive.kit.proof.proxy import close_server, close_writers
from redrive.transports.brokers import ID_HEADER

CHUNK_BYTES = 65_536
MARKER = ID_HEADER.encode()


class Mode(Enum):
    """What becomes of a message: passed on; passed on and replies held back until as many as `expected` have come;
    passed on and the next reply lost, with the connection; swallowed."""

    PASS = auto()
    HOLD_REPLIES = auto()
    LOSE_REPLY = auto()
    SWALLOW = auto()


class Proxy:
    """reached: a message has come. reached_all: as many as `expected`. cuts: connections cut by the proxy. round_trips:
    how often the client spoke, after the server had, while a message was on its way. cut_after: of each new connection,
    the number of bytes from client to server at which it is cut; None = not at all."""

    def __init__(self, upstream: int, *, rewrite: Callable[[bytes], bytes] = bytes) -> None:
        self._upstream, self.rewrite = upstream, rewrite
        self.port = 0
        self.mode = Mode.PASS
        self.reached = asyncio.Event()
        self.reached_all = asyncio.Event()
        self.expected = 0
        self.cuts = 0
        self.round_trips = 0
        self.messages = 0
        self.cut_after: Callable[[], int | None] = lambda: None
        self._server: asyncio.Server | None = None
        self._wires: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self.accept()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.refuse()

    async def accept(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    async def refuse(self) -> None:
        """It no longer listens, and its connections are cut."""
        server, self._server = self._server, None
        if server is not None:
            await close_server(server)
        await self.cut()

    async def cut(self) -> None:
        for wire in self._wires:
            wire.cancel()
        if self._wires:
            await asyncio.wait(self._wires)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = asyncio.current_task()
        assert wire is not None
        self._wires.add(wire)
        try:
            await _Wire(self, self.cut_after()).run(reader, writer, self._upstream)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            await close_writers([writer])
            self._wires.discard(wire)


class _Wire:
    def __init__(self, proxy: Proxy, cut_after: int | None) -> None:
        self._proxy, self._left = proxy, cut_after
        self._tail = b""
        self._loses = self._swallows = False
        self._server_spoke = True

    async def run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        from_server, to_server = await asyncio.open_connection("127.0.0.1", port)
        ways = [
            asyncio.ensure_future(self._to_server(reader, to_server)),
            asyncio.ensure_future(self._to_client(from_server, writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*ways, return_exceptions=True)
            to_server.transport.abort()
            await close_writers([to_server])

    async def _to_server(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while said := await reader.read(CHUNK_BYTES):
            self._look(said)
            if self._swallows:
                continue
            if self._left is not None and len(said) >= self._left:
                writer.write(said[: self._left])
                await writer.drain()
                self._proxy.cuts += 1
                return
            if self._left is not None:
                self._left -= len(said)
            writer.write(said)
            await writer.drain()

    async def _to_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while said := await reader.read(CHUNK_BYTES):
            self._server_spoke = True
            if self._loses:
                self._proxy.cuts += 1
                return
            if self._proxy.mode is Mode.HOLD_REPLIES:
                await self._proxy.reached_all.wait()
            if not self._swallows:
                writer.write(self._proxy.rewrite(said))
                await writer.drain()

    def _look(self, said: bytes) -> None:
        proxy, seen = self._proxy, (self._tail + said).lower()
        self._tail = said[-len(MARKER) + 1 :]
        found = seen.count(MARKER)
        if not found:
            return
        proxy.messages += found
        proxy.round_trips += self._server_spoke
        self._server_spoke = False
        self._loses = self._loses or proxy.mode is Mode.LOSE_REPLY
        self._swallows = self._swallows or proxy.mode is Mode.SWALLOW
        proxy.reached.set()
        if proxy.messages >= proxy.expected:
            proxy.reached_all.set()
