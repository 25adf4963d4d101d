"""A Case API: `POST /cases/{case}/attachments` with a key, `GET` of that key below it, `DELETE /cases/{case}`.

What it attaches is in its ledger, on disk, before an answer leaves, and the ledger is read again at its start. A key
that it knows is answered with the first attachment, unless it is told to ignore keys. Also run as
`python -m redrive.systems.evidence.simulators.case_api` with its settings on standard input; the first line that it
prints is its address.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from aiohttp import web

from redrive.kit.proof import journal
from redrive.systems.evidence.simulators.faults import Fault, Faults

HOST: Final = "127.0.0.1"
BODY_BYTES_MAX: Final = 64 * 1024 * 1024
RETRY_AFTER_SECONDS: Final = "1"
SLOW_SECONDS: Final = 0.3
_REFUSED: Final[Mapping[Fault, tuple[int, str]]] = {
    Fault.UNAVAILABLE: (503, "UNAVAILABLE"),
    Fault.THROTTLED: (429, "TOO_MANY_REQUESTS"),
    Fault.INTERNAL: (500, "SYSTEM_ERROR"),
    Fault.UNAUTHORIZED: (401, "UNAUTHORIZED"),
    Fault.CORRUPTED: (422, "CORRUPTED_FILE"),
}


@dataclass(frozen=True)
class Wanted:
    """One request to attach a file. claimed: the sha256 that the caller says the file has. attempt: likewise, from 1;
    0 = it does not say.
    """

    key: str
    case: str
    name: str
    sha256: str
    claimed: str
    attempt: int


@dataclass
class CaseApi:
    """ledger: one line for each request, refusal, question and attachment. missing: cases that do not exist.

    ignores_keys: a repeated key attaches again. retry_after: of its 429.
    """

    ledger: Path
    faults: Faults = field(default_factory=Faults)
    missing: frozenset[str] = frozenset()
    ignores_keys: bool = False
    retry_after: str = RETRY_AFTER_SECONDS

    def __post_init__(self) -> None:
        lines = list(journal.read(self.ledger))
        self._ids = {line["key"]: line for line in lines if line["log"] == "attached"}
        self._deleted = {line["case"] for line in lines if line["log"] == "deleted"}
        self._count = sum(line["log"] == "attached" for line in lines)
        self._journal = journal.SharedJournal(self.ledger)

    def app(self) -> web.Application:
        app = web.Application(client_max_size=BODY_BYTES_MAX)
        app.add_routes(
            [
                web.post("/cases/{case}/attachments", self._post),
                web.get("/cases/{case}/attachments/{key}", self._get),
                web.delete("/cases/{case}", self._delete),
            ]
        )
        app.on_cleanup.append(self._close)
        return app

    async def _close(self, _: web.Application) -> None:
        self._journal.close()

    async def _post(self, request: web.Request) -> web.StreamResponse:
        wanted = await _read(request)
        await self._journal.append(
            log="request", key=wanted.key, case=wanted.case, name=wanted.name, attempt=wanted.attempt
        )
        if not self.ignores_keys and (known := self._ids.get(wanted.key)) is not None:
            return web.json_response({"attachment_id": await self._repeated(known)}, status=200)
        if (refused := self._refused(wanted)) is not None:
            return await self._refuse(wanted, *refused)
        fault = self.faults.next(wanted.key)
        if fault is Fault.HANG_BEFORE:
            return await _hang()
        if fault is Fault.RESET:
            return await _dropped(request)
        if fault is Fault.SLOW:
            await asyncio.sleep(SLOW_SECONDS)
        if fault is not None and fault in _REFUSED:
            return await self._refuse(wanted, *_REFUSED[fault])
        return await _answered(request, await self._attach(wanted), fault)

    def _refused(self, wanted: Wanted) -> tuple[int, str] | None:
        if wanted.case in self.missing:
            return 404, "CASE_NOT_FOUND"
        if wanted.case in self._deleted:
            return 410, "CASE_DELETED"
        return (422, "CORRUPTED_FILE") if wanted.sha256 != wanted.claimed else None

    async def _refuse(self, wanted: Wanted, status: int, code: str) -> web.Response:
        await self._journal.append(
            log="refused", key=wanted.key, case=wanted.case, attempt=wanted.attempt, status=status, code=code
        )
        headers = {"Retry-After": self.retry_after} if status == 429 else {}
        return web.json_response({"code": code}, status=status, headers=headers)

    async def _attach(self, wanted: Wanted) -> str:
        """The key is reserved before the ledger is written, so that two requests of one key attach once."""
        if not self.ignores_keys and (known := self._ids.get(wanted.key)) is not None:
            return await self._repeated(known)
        self._count += 1
        line: dict[str, Any] = {
            "id": f"att-{self._count}",
            "key": wanted.key,
            "case": wanted.case,
            "name": wanted.name,
            "sha256": wanted.sha256,
            "attempt": wanted.attempt,
        }
        self._ids[wanted.key] = line
        await self._journal.append(log="attached", **line)
        return str(line["id"])

    async def _repeated(self, known: Mapping[str, Any]) -> str:
        """Answered once the ledger has the attachment that it names: lines are written in their order."""
        await self._journal.append(log="repeated", key=known["key"])
        return str(known["id"])

    async def _get(self, request: web.Request) -> web.StreamResponse:
        key = request.match_info["key"]
        known = self._ids.get(key)
        await self._journal.append(log="asked", key=key, found=known is not None)
        if known is None:
            return web.json_response({"code": "ATTACHMENT_NOT_FOUND"}, status=404)
        return web.json_response({"attachment_id": known["id"], "case_id": known["case"], "sha256": known["sha256"]})

    async def _delete(self, request: web.Request) -> web.StreamResponse:
        case = request.match_info["case"]
        self._deleted.add(case)
        await self._journal.append(log="deleted", case=case)
        return web.Response(status=204)


async def _read(request: web.Request) -> Wanted:
    body = await request.read()
    return Wanted(
        key=unquote(request.headers["X-Attachment-Key"]),
        case=request.match_info["case"],
        name=unquote(request.headers.get("X-File-Name", "")),
        sha256=hashlib.sha256(body).hexdigest(),
        claimed=request.headers.get("X-Content-SHA256", ""),
        attempt=int(request.headers.get("X-Attempt", "0")),
    )


def _answered(request: web.Request, id: str, fault: Fault | None) -> Awaitable[web.StreamResponse]:
    """It is attached; what the caller hears of it."""
    match fault:
        case Fault.LOST:
            return _dropped(request)
        case Fault.HANG_AFTER:
            return _hang()
        case Fault.GATEWAY:
            return _said(web.Response(status=504))
        case Fault.ATTACHED_500:
            return _said(web.Response(status=500))
        case Fault.GARBAGE:
            return _said(web.Response(status=200, body=b"\xff<html>"))
    return _said(web.json_response({"attachment_id": id}, status=201))


async def _said(response: web.Response) -> web.StreamResponse:
    return response


async def _hang() -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


async def _dropped(request: web.Request) -> web.StreamResponse:
    """The request was read, and no reply comes."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def case_api_of(settings: Mapping[str, Any]) -> CaseApi:
    """settings: `ledger`, and where wanted `faults`, `missing`, `ignores_keys`, `retry_after`."""
    return CaseApi(
        ledger=Path(settings["ledger"]),
        faults=Faults(**settings.get("faults", {})),
        missing=frozenset(settings.get("missing", ())),
        ignores_keys=settings.get("ignores_keys", False),
        retry_after=settings.get("retry_after", RETRY_AFTER_SECONDS),
    )


async def serve(settings: Mapping[str, Any]) -> None:
    """Until it is cancelled; prints its address. port: one of its own again after a restart."""
    runner = web.AppRunner(case_api_of(settings).app(), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, settings.get("port", 0)).start()
        print(f"http://{HOST}:{runner.addresses[0][1]}", flush=True)
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


def main() -> None:
    settings = json.loads(sys.stdin.buffer.read())
    with suppress(KeyboardInterrupt):
        asyncio.run(serve(settings))


if __name__ == "__main__":
    main()
