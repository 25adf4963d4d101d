"""A mail server for this machine: plain SMTP, every accepted mail in its log, on disk, before the server says 250.

It knows neither TLS nor logins, and delivers nowhere. Also run as `python -m
redrive.systems.reviews.simulators.mail_server`
with its settings on standard input; the first line that it prints is its port.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
from asyncio import StreamReader, StreamWriter
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from redrive.kit.proof import journal
from redrive.systems.reviews.simulators.script import Fault, Script

HOST: Final = "127.0.0.1"
LINE_MAX: Final = 64 * 1024
_REPLIES: Final = {
    Fault.UNAVAILABLE: b"451 4.3.0 try again later\r\n",
    Fault.INTERNAL: b"451 4.3.0 internal error\r\n",
    Fault.THROTTLED: b"450 4.7.1 greylisted\r\n",
    Fault.REFUSED: b"550 5.1.1 no such user\r\n",
}


class MailServer:
    """log: one line for each mail that it accepted, with its bytes."""

    def __init__(self, log: Path, script: Script) -> None:
        self._script = script
        self._journal = journal.SharedJournal(log)
        self._count = 0

    async def talk(self, reader: StreamReader, writer: StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError, ValueError):
            await _Session(self, reader, writer).run()
        writer.close()

    def fault(self) -> Fault | None:
        return self._script.next()

    async def accept(self, recipients: list[str], data: bytes) -> str:
        """It is delivered, as far as this server is concerned."""
        self._count += 1
        queued = f"Q{self._count:06}"
        digest = hashlib.sha256(data).hexdigest()
        await self._journal.append(
            log="sent", to=recipients, id=queued, sha256=digest, data=data.decode("utf-8", "replace")
        )
        return queued

    def close(self) -> None:
        self._journal.close()


class _Session:
    """One connection; mails one after the other."""

    def __init__(self, server: MailServer, reader: StreamReader, writer: StreamWriter) -> None:
        self._server, self._reader, self._writer = server, reader, writer
        self._recipients: list[str] = []
        self._fault: Fault | None = None

    async def run(self) -> None:
        await self._say(b"220 localhost simulated mail server\r\n")
        while line := await self._reader.readline():
            verb = line.strip().upper()[:4]
            if verb == b"QUIT":
                await self._say(b"221 bye\r\n")
                return
            await self._say(await self._reply(verb, line))

    async def _reply(self, verb: bytes, line: bytes) -> bytes:
        match verb:
            case b"EHLO":
                return b"250-localhost\r\n250-8BITMIME\r\n250 SMTPUTF8\r\n"
            case b"HELO" | b"NOOP":
                return b"250 ok\r\n"
            case b"MAIL":
                self._recipients, self._fault = [], self._server.fault()
                return b"250 ok\r\n"
            case b"RSET":
                self._recipients = []
                return b"250 ok\r\n"
            case b"RCPT":
                return self._recipient(line)
            case b"DATA":
                return await self._data()
        return b"502 not known here\r\n"

    def _recipient(self, line: bytes) -> bytes:
        if self._fault in _REPLIES:
            return _REPLIES[self._fault]
        self._recipients.append(line.partition(b"<")[2].partition(b">")[0].decode("utf-8", "replace"))
        return b"250 ok\r\n"

    async def _data(self) -> bytes:
        if not self._recipients:
            return b"503 no recipient\r\n"
        await self._say(b"354 go on\r\n")
        lines = []
        while (line := await self._reader.readline()) not in (b".\r\n", b""):
            lines.append(line[1:] if line.startswith(b"..") else line)
        if not line or self._fault is Fault.RESET:
            raise ConnectionResetError
        queued = await self._server.accept(self._recipients, b"".join(lines))
        if self._fault in (Fault.ACCEPTED_LOST, Fault.ACCEPTED_502):
            self._writer.transport.abort()
            raise ConnectionResetError
        return f"250 2.0.0 queued as {queued}\r\n".encode()

    async def _say(self, line: bytes) -> None:
        self._writer.write(line)
        await self._writer.drain()


async def start(log: Path, script: Script) -> tuple[asyncio.Server, int, MailServer]:
    """On a free port."""
    mail = MailServer(log, script)
    server = await asyncio.start_server(mail.talk, HOST, 0, limit=LINE_MAX)
    return server, server.sockets[0].getsockname()[1], mail


async def serve(log: Path, script: Script) -> None:
    server, port, mail = await start(log, script)
    print(port, flush=True)
    try:
        async with server:
            await asyncio.Event().wait()
    finally:
        mail.close()


def main() -> None:
    settings: dict[str, Any] = json.loads(sys.stdin.buffer.read())
    with suppress(KeyboardInterrupt):
        asyncio.run(serve(Path(settings["log"]), Script(**settings.get("script", {}))))


if __name__ == "__main__":
    main()
