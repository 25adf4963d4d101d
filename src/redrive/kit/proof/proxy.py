"""Proxies that can lose a reply: the server has done the work, the client is not told. This one is for PostgreSQL.

`lose_reply` cuts a connection at the server's next bytes: the client cannot know whether its statement has happened.
`lose_reply_to` waits for the end of the reply to a statement, so that its transaction has ended. `AnyProxy` and `Wire`
are what it shares with the proxy of brokers (`redrive.kit.proof.brokers.proxy`).
"""

import asyncio
import contextlib
import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from psycopg import conninfo

CHUNK_BYTES = 65_536
SOCKET_NAME = ".s.PGSQL.5432"
ACCEPT_STEPS = 5  # of the event loop, from an accepted connection to the task that has it
HEAD_BYTES = 5  # of a message of the protocol: its type, its length
READY_FOR_QUERY = ord("Z")

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Wire(ABC):
    """One connection through a proxy. over: it is cut as soon as what was chosen last is passed on."""

    over = is_connected = False

    @abstractmethod
    async def to_server(self, said: bytes) -> bytes:
        """What is passed on of what the client said."""

    @abstractmethod
    async def to_client(self, said: bytes) -> bytes: ...

    async def run(self, client: Streams, connect: Callable[[], Awaitable[Streams]]) -> None:
        """Until one side has ended."""
        from_server, to_server = await connect()
        self.is_connected = True
        ways = [
            asyncio.ensure_future(self._pass(client[0], to_server, self.to_server)),
            asyncio.ensure_future(self._pass(from_server, client[1], self.to_client)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(*ways, return_exceptions=True)
            to_server.transport.abort()
            await close_writers([to_server])

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, choose: Callable[[bytes], Awaitable[bytes]]
    ) -> None:
        while not self.over and (said := await reader.read(CHUNK_BYTES)):
            writer.write(await choose(said))
            await writer.drain()


WireType = TypeVar("WireType", bound=Wire)


class AnyProxy(ABC, Generic[WireType]):
    """cuts: how many connections it has cut to lose a reply."""

    def __init__(self, wire: Callable[[], WireType]) -> None:
        self._wire = wire
        self.cuts = 0
        self._server: asyncio.Server | None = None
        self._wires: dict[asyncio.Task[Any], WireType] = {}

    @abstractmethod
    async def _listen(self) -> asyncio.Server: ...

    @abstractmethod
    async def _connect(self) -> Streams: ...

    async def __aenter__(self) -> Self:
        await self.accept()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.refuse()

    async def accept(self) -> None:
        if self._server is None:
            self._server = await self._listen()

    async def refuse(self) -> None:
        """It no longer listens, and its connections are cut."""
        server, self._server = self._server, None
        if server is not None:
            await close_server(server)
        await self.cut()

    async def cut(self) -> None:
        wires = list(self._wires)
        for wire in wires:
            wire.cancel()
        if wires:
            await asyncio.wait(wires)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        wire = self._wires[task] = self._wire()
        try:
            with contextlib.suppress(OSError):
                await wire.run((reader, writer), self._connect)
        except asyncio.CancelledError:  # of a cut; asyncio reports a handler that is cancelled
            writer.transport.abort()
        finally:
            await close_writers([writer])
            del self._wires[task]


class _PostgresWire(Wire):
    """cut: at the next bytes of the server. losing: a reply is kept back until it has ended."""

    def __init__(self, proxy: "Proxy") -> None:
        self._proxy = proxy
        self.cut = self.losing = False
        self._rest = b""

    async def to_server(self, said: bytes) -> bytes:
        self.losing = self.losing or self._proxy.is_to_be_lost(said)
        return said

    async def to_client(self, said: bytes) -> bytes:
        ended = self._replies(said)
        self._proxy.replies += ended
        if self.cut or (self.losing and ended):
            self.over = True
            self._proxy.cuts += 1
        return b"" if self.over or self.losing else said

    def _replies(self, said: bytes) -> int:
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


class Proxy(AnyProxy[_PostgresWire]):
    """Listens on a Unix socket. replies: how often the server was ready for the next query."""

    def __init__(self, directory: Path, dsn: str, *, seed: int = 0) -> None:
        super().__init__(lambda: _PostgresWire(self))
        self._directory = directory
        self._target = conninfo.conninfo_to_dict(dsn)
        self._random = random.Random(seed)
        self._words: bytes | None = None
        self.replies = 0

    @property
    def dsn(self) -> str:
        """Through this proxy; a Unix socket is never encrypted."""
        target = {**self._target, "host": str(self._directory), "port": "5432"}
        target.pop("hostaddr", None)
        return conninfo.make_conninfo("", **target)

    def lose_reply(self) -> bool:
        """False when there is no connection."""
        wires = [wire for wire in self._wires.values() if wire.is_connected and not wire.cut]
        if wires:
            self._random.choice(wires).cut = True
        return bool(wires)

    def lose_reply_to(self, words: bytes) -> None:
        """To the next statement with these words, once."""
        self._words = words

    def is_to_be_lost(self, said: bytes) -> bool:
        found = self._words is not None and self._words in said
        if found:
            self._words = None
        return found

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_unix_server(self._serve, self._directory / SOCKET_NAME)

    async def _connect(self) -> Streams:
        host = str(self._target.get("hostaddr") or self._target.get("host") or "/var/run/postgresql")
        port = int(self._target.get("port") or 5432)
        if host.startswith("/"):
            return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        return await asyncio.open_connection(host, port)


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
