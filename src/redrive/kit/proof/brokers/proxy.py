"""A proxy in front of a broker that loses replies, cuts connections, and counts the round trips.

A message is recognised by the name of the header that every transport sends with it. `rewrite` changes what the server
says, for a broker whose replies name its own port.
"""

import asyncio
from collections.abc import Callable
from enum import Enum, auto

from redrive.kit.proof.proxy import AnyProxy, Streams, Wire
from redrive.transports.brokers import ID_HEADER

MARKER = ID_HEADER.encode()


class Mode(Enum):
    """What becomes of a message: passed on; passed on and replies held back until as many as `expected` have come;
    passed on and the next reply lost, with the connection; swallowed."""

    PASS = auto()
    HOLD_REPLIES = auto()
    LOSE_REPLY = auto()
    SWALLOW = auto()


class Proxy(AnyProxy["_BrokerWire"]):
    """reached: a message has come. reached_all: as many as `expected`. cuts: connections cut by the proxy. round_trips:
    how often the client spoke, after the server had, while a message was on its way. cut_after: of each new connection,
    the number of bytes from client to server at which it is cut; None = not at all."""

    def __init__(self, upstream: int, *, rewrite: Callable[[bytes], bytes] = bytes) -> None:
        super().__init__(lambda: _BrokerWire(self, self.cut_after()))
        self._upstream, self.rewrite = upstream, rewrite
        self.port = 0
        self.mode = Mode.PASS
        self.reached = asyncio.Event()
        self.reached_all = asyncio.Event()
        self.expected = self.round_trips = self.messages = 0
        self.cut_after: Callable[[], int | None] = lambda: None

    async def _listen(self) -> asyncio.Server:
        server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _connect(self) -> Streams:
        return await asyncio.open_connection("127.0.0.1", self._upstream)


class _BrokerWire(Wire):
    def __init__(self, proxy: Proxy, cut_after: int | None) -> None:
        self._proxy, self._left = proxy, cut_after
        self._tail = b""
        self._loses = self._swallows = False
        self._server_spoke = True

    async def to_server(self, said: bytes) -> bytes:
        self._look(said)
        if self._swallows or self._left is None:
            return b"" if self._swallows else said
        if len(said) >= self._left:
            self._cut()
        passed, self._left = said[: self._left], self._left - len(said)
        return passed

    async def to_client(self, said: bytes) -> bytes:
        self._server_spoke = True
        if self._loses:
            self._cut()
            return b""
        if self._proxy.mode is Mode.HOLD_REPLIES:
            await self._proxy.reached_all.wait()
        return b"" if self._swallows else self._proxy.rewrite(said)

    def _cut(self) -> None:
        self.over = True
        self._proxy.cuts += 1

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
