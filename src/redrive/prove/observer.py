"""The destination as a process of its own, which writes down every request and every effect before it answers.

    python -m redrive.prove.observer SOCKET LOG   with a script of faults as JSON on standard input

One JSON object a line in and out, over a Unix socket. Its log is the witness against which the engine is checked:
on disk before an answer leaves, and read again after a restart. Where told to, it remembers tokens as a rail with
lookup does: a second send of one has no second effect and is written down as a repeat.
"""

import asyncio
import base64
import contextlib
import hashlib
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from redrive.kit.proof import journal
from redrive.prove import script

MAX_LINE_BYTES = 1_000_000


class Observer:
    """remembers: destinations that know a token again. durable: False where neither it nor the machine ends before
    its log is read."""

    def __init__(
        self, log: Path, faults: script.Script, *, remembers: frozenset[str] = frozenset(), durable: bool = True
    ) -> None:
        self._requests: Counter[tuple[str, str]] = Counter()
        self._effects: dict[str, str] = {}
        self._sending: Counter[str] = Counter()
        self._count = 0
        for line in journal.read(log):
            self._remember(line)
        self._journal = journal.SharedJournal(log, durable=durable)
        self._script = faults
        self._remembers = remembers

    def _remember(self, line: journal.Line) -> None:
        if line["log"] == "request":
            self._requests[line["call"], line["id"]] += 1
        elif line["log"] == "effect":
            self._effects.setdefault(line["token"], line["reference"])
            self._count += 1

    async def serve(self, socket: Path) -> asyncio.Server:
        """It gets its name when it listens: a socket that does not listen yet refuses those that wait for it."""
        unnamed = socket.with_suffix(".new")
        unnamed.unlink(missing_ok=True)
        server = await asyncio.start_unix_server(self._connection, unnamed, limit=MAX_LINE_BYTES)
        unnamed.rename(socket)
        return server

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError, asyncio.IncompleteReadError):
            while line := await reader.readline():
                if not await self._request(json.loads(line), reader, writer):
                    break
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    async def _request(self, asked: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """False: the connection is to be closed."""
        call, message = asked["call"], asked["id"]
        self._requests[call, message] += 1
        now = time.time()
        fault = asked.get("fault") or self._script.fault(
            call, message, self._requests[call, message], destination=asked["destination"], at=now
        )
        body = base64.b64decode(asked["body"])
        noted = {name: asked[name] for name in ("call", "destination", "id", "attempt", "token")}
        noted |= {name: asked[name] for name in ("pid", "parent") if name in asked}
        await self._journal.append(log="request", **noted, sha256=hashlib.sha256(body).hexdigest(), at=now, fault=fault)
        if call == "lookup":
            return await self._lookup(noted, fault, writer)
        self._sending[asked["token"]] += 1
        try:
            return await self._send(noted, fault, reader, writer)
        finally:
            self._sending[asked["token"]] -= 1

    async def _send(
        self, asked: dict[str, Any], fault: str | None, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        match fault:
            case "reset" | script.OUTAGE:
                return False
            case "hang":
                await reader.read()
                await self._journal.append(log="gone", **asked, at=time.time())
                return False
            case "refuse" | "later":
                return await self._answer(writer, asked, answer="refused" if fault == "refuse" else fault)
            case "busy":
                return await self._answer(writer, asked, answer="busy", retry_after=script.RETRY_AFTER_SECONDS)
            case "slow":
                await asyncio.sleep(script.SLOW_SECONDS)
        reference = await self._effect(asked)
        match fault:
            case "lost_reply":
                return False
            case "garbage":
                writer.write(b"\xff<html>it may have worked\n")
                return True
        return await self._answer(writer, asked, answer="done", reference=reference)

    async def _effect(self, asked: dict[str, Any]) -> str:
        known = self._effects.get(asked["token"])
        if known is not None and asked["destination"] in self._remembers:
            await self._journal.append(log="repeat", **asked, reference=known, at=time.time())
            return known
        self._count += 1
        reference = f"effect-{self._count}"
        # In the ledger at once: a lookup while the line is on its way to the disk must not answer "absent".
        self._effects.setdefault(asked["token"], reference)
        await self._journal.append(log="effect", **asked, reference=reference, at=time.time())
        return reference

    async def _lookup(self, asked: dict[str, Any], fault: str | None, writer: asyncio.StreamWriter) -> bool:
        if fault == "lookup_lost":
            return False
        if fault == "cannot_tell" or self._sending[asked["token"]]:
            return await self._answer(writer, asked, answer="cannot_tell")
        reference = self._effects.get(asked["token"])
        if reference is None:
            return await self._answer(writer, asked, answer="absent")
        return await self._answer(writer, asked, answer="found", reference=reference)

    async def _answer(self, writer: asyncio.StreamWriter, asked: dict[str, Any], **answer: Any) -> bool:
        """The answer is written down too, whether or not it arrives."""
        await self._journal.append(log="answer", **asked, **answer, at=time.time())
        writer.write(json.dumps(answer).encode() + b"\n")
        return True


async def main(socket: Path, log: Path, settings: dict[str, Any]) -> None:
    faults = script.Script(**settings.get("script", {"send": {}, "lookup": {}}))
    remembers = frozenset(settings.get("remembers", ()))
    observer = Observer(log, faults, remembers=remembers, durable=settings.get("durable", True))
    server = await observer.serve(socket)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.stdin.read() or "{}")))
