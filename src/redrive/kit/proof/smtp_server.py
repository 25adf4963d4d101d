"""A mail server on loopback that keeps what it takes, with faults as a test or a proof says. It relays nothing.

    async with serving(SmtpServer()) as server:
        server.faults["RCPT"] = Fault("451 4.7.1 greylisted", times=1)

It speaks EHLO, STARTTLS, AUTH PLAIN and LOGIN, SIZE and SMTPUTF8. With `log`, each accepted mail is a line of JSON in a
file, written before the reply to its end. `python -m redrive.kit.proof.smtp_server PORT_FILE LOG` runs it alone.
"""

import asyncio
import base64
import json
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

LINE_MAX: Final = 1 << 20


class Act(StrEnum):
    """What it does in place of a reply. LOSE_REPLY, KEEP_SILENT: it does what it was asked for first."""

    HANG_UP = "hang up"
    SILENT = "silent"
    LOSE_REPLY = "lose reply"
    KEEP_SILENT = "keep silent"


@dataclass
class Fault:
    """answer: a reply line, or an act. times: for how many connections or commands; None = all."""

    answer: str | Act
    times: int | None = None


@dataclass(frozen=True)
class Received:
    """sender, recipients: of the envelope. login: as whom it came; None = without one."""

    sender: str
    recipients: tuple[str, ...]
    body: bytes
    encrypted: bool
    login: str | None


@dataclass
class SmtpServer:
    """faults: by step, one of GREETING, EHLO, STARTTLS, AUTH, MAIL, RCPT, DATA, CONTENT (while the mail comes) and END.

    context: offers STARTTLS with it, or speaks TLS from the first byte where `implicit`. needs_tls: MAIL is refused
    before it. logins: user to password; empty = none is asked for. size: the largest mail that it takes.
    """

    context: ssl.SSLContext | None = None
    implicit: bool = False
    needs_tls: bool = False
    logins: dict[str, str] = field(default_factory=dict)
    size: int | None = None
    utf8: bool = True
    log: Path | None = None
    faults: dict[str, Fault] = field(default_factory=dict)
    mails: list[Received] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    port: int = 0

    def fault(self, step: str) -> str | Act | None:
        found = self.faults.get(step)
        if found is None or found.times == 0:
            return None
        if found.times is not None:
            found.times -= 1
        return found.answer

    def keep(self, mail: Received) -> None:
        self.mails.append(mail)
        if self.log is not None:
            with self.log.open("a", encoding="utf-8") as file:
                file.write(json.dumps({**vars(mail), "body": mail.body.decode("utf-8", "replace")}) + "\n")


@asynccontextmanager
async def serving(server: SmtpServer, *, port: int = 0) -> AsyncIterator[SmtpServer]:
    """It listens on `server.port` of loopback while the block runs; open connections are cut off at its end."""
    sessions: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        sessions.add(task)
        try:
            await _Session(server, reader, writer).run()
        except asyncio.CancelledError:
            return  # the server ends; asyncio would log a cancelled session
        finally:
            sessions.discard(task)
            writer.transport.abort()

    tls = server.context if server.implicit else None
    listening = await asyncio.start_server(serve, "127.0.0.1", port, ssl=tls, limit=LINE_MAX)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        for task in sessions:
            task.cancel()
        await asyncio.gather(*sessions, return_exceptions=True)


class _HangUp(Exception): ...


class _Session:
    """One connection."""

    def __init__(self, server: SmtpServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._server, self._reader, self._writer = server, reader, writer
        self._encrypted, self._login = server.implicit, None if server.logins else ""
        self._sender: str | None = None
        self._recipients: list[str] = []

    async def run(self) -> None:
        with suppress(_HangUp, ConnectionError, asyncio.IncompleteReadError, ValueError):
            await self._reply("GREETING", "220 mail.test ESMTP")
            while True:
                line = (await self._reader.readline()).decode("utf-8", "replace")
                if not line:
                    return
                await self._command(line.rstrip("\r\n"))

    async def _command(self, line: str) -> None:
        self._server.commands.append(line)
        self._server.reached.set()
        word = line.partition(" ")[0].upper()
        match word:
            case "EHLO" | "HELO":
                await self._reply("EHLO", self._extensions() if word == "EHLO" else "250 mail.test")
            case "STARTTLS":
                await self._start_tls()
            case "AUTH":
                await self._authenticate(line)
            case "MAIL":
                await self._mail(line)
            case "RCPT":
                self._recipients.append(_path(line))
                await self._reply("RCPT", "250 2.1.5 Ok", undo=self._recipients.pop)
            case "DATA":
                await self._data()
            case "QUIT":
                await self._write("221 2.0.0 Bye")
                raise _HangUp
            case _:
                await self._write("502 5.5.2 Unknown command")

    def _extensions(self) -> str:
        lines = ["mail.test"]
        if self._server.context is not None and not self._encrypted:
            lines.append("STARTTLS")
        if self._server.logins:
            lines.append("AUTH PLAIN LOGIN")
        if self._server.utf8:
            lines.append("SMTPUTF8")
        lines.append("8BITMIME" if self._server.size is None else f"SIZE {self._server.size}")
        return "\r\n".join([*(f"250-{line}" for line in lines[:-1]), f"250 {lines[-1]}"])

    async def _start_tls(self) -> None:
        await self._reply("STARTTLS", "220 2.0.0 Go ahead")
        assert self._server.context is not None
        await self._writer.start_tls(self._server.context)
        self._encrypted = True

    async def _authenticate(self, line: str) -> None:
        _, how, *first = line.split(" ")
        if how.upper() == "PLAIN":
            _, user, password = base64.b64decode(first[0]).decode().split("\0")
        else:
            user = base64.b64decode(first[0]).decode()
            await self._write("334 UGFzc3dvcmQ6")
            password = base64.b64decode(await self._reader.readline()).decode()
        right = self._server.logins.get(user) == password
        self._login = user if right else self._login
        await self._reply("AUTH", "235 2.7.0 Ok" if right else "535 5.7.8 Authentication credentials invalid")

    async def _mail(self, line: str) -> None:
        if self._server.needs_tls and not self._encrypted:
            await self._write("530 5.7.0 Must issue a STARTTLS command first")
            return
        if self._login is None:
            await self._write("530 5.7.0 Authentication required")
            return
        self._sender, self._recipients = _path(line), []
        await self._reply("MAIL", "250 2.1.0 Ok")

    async def _data(self) -> None:
        await self._reply("DATA", "354 End data with <CR><LF>.<CR><LF>")
        if (fault := self._server.fault("CONTENT")) is not None:
            await self._act(fault)
        body = await self._reader.readuntil(b"\r\n.\r\n")
        assert self._sender is not None
        mail = Received(
            self._sender,
            tuple(self._recipients),
            body.removesuffix(b".\r\n").replace(b"\r\n..", b"\r\n."),
            self._encrypted,
            self._login or None,
        )
        fault = self._server.fault("END")
        if fault is None or fault in (Act.LOSE_REPLY, Act.KEEP_SILENT):
            self._server.keep(mail)
        if fault is not None:
            await self._act(fault)
        else:
            await self._write(f"250 2.0.0 Ok: queued as {len(self._server.mails):05}")

    async def _reply(self, step: str, usual: str, *, undo: object = None) -> None:
        fault = self._server.fault(step)
        if fault is not None and callable(undo):
            undo()
        await (self._write(usual) if fault is None else self._act(fault))

    async def _act(self, fault: str | Act) -> None:
        if fault in (Act.HANG_UP, Act.LOSE_REPLY):
            raise _HangUp
        if fault in (Act.SILENT, Act.KEEP_SILENT):
            await self._reader.read()  # until the other side hangs up
            raise _HangUp
        await self._write(fault)
        if fault.startswith(("421", "554")):
            raise _HangUp

    async def _write(self, line: str) -> None:
        self._writer.write(f"{line}\r\n".encode())
        await self._writer.drain()


def _path(line: str) -> str:
    return line.partition("<")[2].partition(">")[0]


async def _serve_alone(port_file: Path, log: Path) -> None:
    async with serving(SmtpServer(log=log)) as server:
        await asyncio.to_thread(port_file.write_text, str(server.port), "utf-8")
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve_alone(Path(sys.argv[1]), Path(sys.argv[2])))
