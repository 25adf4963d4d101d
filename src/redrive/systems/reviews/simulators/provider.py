"""A provider's HTTP face: `POST /messages` with a token, `GET /messages/{token}`.

What it accepts is in its log, on disk, before an answer leaves; a token that it has seen is answered with the first id.
Also run as `python -m redrive.systems.reviews.simulators.provider` with its settings on standard input; the first line
that it prints is its address.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from redrive.kit.proof import journal
from redrive.kit.simulator import serve
from redrive.systems.reviews.simulators.script import Fault, Script

BODY_BYTES_MAX: Final = 1024 * 1024
RETRY_AFTER_SECONDS: Final = "1"
_REFUSED: Final[Mapping[Fault, tuple[int, str]]] = {
    Fault.UNAVAILABLE: (503, "unavailable"),
    Fault.INTERNAL: (500, "internal_error"),
    Fault.THROTTLED: (429, "rate_limit_exceeded"),
    Fault.REFUSED: (422, "invalid_recipient"),
}


class Provider:
    """log: one line for each request, refusal, question, and notification that it sent. knows_tokens: a repeated one
    sends nothing.
    """

    def __init__(self, log: Path, script: Script, *, knows_tokens: bool = True) -> None:
        self._script, self._knows_tokens = script, knows_tokens
        self._ids = {line["token"]: line["id"] for line in journal.read(log) if line.get("log") == "sent"}
        self._journal = journal.SharedJournal(log)

    def app(self) -> web.Application:
        app = web.Application(client_max_size=BODY_BYTES_MAX)
        app.add_routes([web.post("/messages", self._post), web.get("/messages/{token}", self._get)])
        app.on_cleanup.append(self._close)
        return app

    async def _close(self, _: web.Application) -> None:
        self._journal.close()

    async def _post(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        given = json.loads(body)
        token = given["token"]
        await self._journal.append(log="request", token=token, to=given["to"], sha256=hashlib.sha256(body).hexdigest())
        if token in self._ids and self._knows_tokens:
            return web.json_response({"id": self._ids[token]}, status=200)
        fault = self._script.next()
        if fault is not None and fault in _REFUSED:
            await self._journal.append(log="refused", token=token)
            return _refusal(*_REFUSED[fault])
        if fault is Fault.RESET:
            return _dropped(request)
        id = await self._send(token, given, body)
        return _accepted(request, id, fault)

    async def _send(self, token: str, given: Mapping[str, Any], body: bytes) -> str:
        """It is reserved before the log is written, so that two requests of one token send once."""
        id = self._ids[token] = f"n-{len(self._ids) + 1}-{token[:8]}"
        digest = hashlib.sha256(body).hexdigest()
        await self._journal.append(
            log="sent", token=token, id=id, to=given["to"], subject=given["subject"], sha256=digest
        )
        return id

    async def _get(self, request: web.Request) -> web.StreamResponse:
        token = request.match_info["token"]
        id = self._ids.get(token)
        await self._journal.append(log="asked", token=token, found=id is not None)
        if id is None:
            return web.json_response({"code": "not_found"}, status=404)
        return web.json_response({"id": id, "status": "accepted"})


def _accepted(request: web.Request, id: str, fault: Fault | None) -> web.StreamResponse:
    if fault is Fault.ACCEPTED_LOST:
        return _dropped(request)
    if fault is Fault.ACCEPTED_502:
        return web.Response(status=502)
    return web.json_response({"id": id}, status=202)


def _refusal(status: int, code: str) -> web.Response:
    headers = {"Retry-After": RETRY_AFTER_SECONDS} if status == 429 else {}
    return web.json_response({"code": code}, status=status, headers=headers)


def _dropped(request: web.Request) -> web.Response:
    """The request was read, and no reply comes."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def provider_of(settings: Mapping[str, Any]) -> web.Application:
    script = Script(**settings.get("script", {}))
    return Provider(Path(settings["log"]), script, knows_tokens=settings.get("knows_tokens", True)).app()


if __name__ == "__main__":
    serve(provider_of)
