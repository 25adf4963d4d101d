"""The subscribers' server: an endpoint for each tenant, in a process of its own, with a ledger outside the engine.

    POST /{tenant}

What was asked is on disk before anything else happens, an effect before its answer leaves. An `Idempotency-Key` that is
known has no second effect. The endpoint of the hostile tenant hangs, fails, resets, throttles and trickles.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from redrive.kit.proof.journal import SharedJournal
from redrive.systems.tenant.prove.plan import HOSTILE

HOST: Final = "127.0.0.1"
HANG_SECONDS: Final = 4.0  # longer than a relay waits
RETRY_AFTER_SECONDS: Final = "2"
TRICKLE_SECONDS: Final = 0.02
TRICKLED_BYTES: Final = 20
FAULTS_MAX: Final = 3  # of one event: then its endpoint takes it
BEFORE: Final = ("hang before", "500 before", "reset before", "429 before")
AFTER: Final = ("hang after", "500 after", "reset after", "slow bytes")
REFUSED: Final = "503 for ever"


class Server:
    """fault_share: of the hostile tenant's requests. seed: what draws its faults."""

    def __init__(self, ledger: Path, *, seed: int, fault_share: float) -> None:
        self._ledger = SharedJournal(ledger)
        self._seed, self._fault_share = seed, fault_share
        self._requests: Counter[str] = Counter()
        self._effects: set[tuple[str, str]] = set()

    def app(self) -> web.Application:
        app = web.Application()
        app.add_routes([web.post("/{tenant}", self._post)])
        return app

    async def _post(self, request: web.Request) -> web.StreamResponse:
        tenant, body = request.match_info["tenant"], await request.json()
        token = request.headers["Idempotency-Key"].strip('"')
        fault = self._fault(tenant, token, body)
        self._requests[token] += 1
        said = {name: body[name] for name in ("name", "order_by")}
        about = {"endpoint": tenant, "tenant": body["tenant"], "token": token, **said}
        await self._ledger.append(log="request", at=time.monotonic(), fault=fault, **about)
        if fault in (*BEFORE, REFUSED):
            return await self._answered(request, fault)
        await self._have_effect(tenant, token, about)
        return await self._answered(request, fault)

    async def _have_effect(self, tenant: str, token: str, about: Mapping[str, Any]) -> None:
        if (tenant, token) in self._effects:
            await self._ledger.append(log="repeat", **about)
            return
        self._effects.add((tenant, token))
        await self._ledger.append(log="effect", at=time.monotonic(), **about)

    def _fault(self, tenant: str, token: str, body: Mapping[str, Any]) -> str | None:
        """Drawn by the name of the event and how often it has come: the same seed draws the same."""
        if body["refused"]:
            return REFUSED
        nth = self._requests[token]
        chance = random.Random(f"{self._seed}/{body['name']}/{nth}")
        if tenant != HOSTILE or nth >= FAULTS_MAX or chance.random() >= self._fault_share:
            return None
        return chance.choice([*BEFORE, *AFTER])

    async def _answered(self, request: web.Request, fault: str | None) -> web.StreamResponse:
        kind = (fault or "").split()[0] if fault else None
        match kind:
            case "hang":
                await asyncio.sleep(HANG_SECONDS)
            case "reset":
                assert request.transport is not None
                request.transport.abort()
            case "500" | "503":
                return web.Response(status=int(kind))
            case "429":
                return web.Response(status=429, headers={"Retry-After": RETRY_AFTER_SECONDS})
            case "slow":
                return await _trickled(request)
        return web.Response(status=204)


async def _trickled(request: web.Request) -> web.StreamResponse:
    reply = web.StreamResponse()
    await reply.prepare(request)
    for _ in range(TRICKLED_BYTES):
        await reply.write(b".")
        await asyncio.sleep(TRICKLE_SECONDS)
    await reply.write_eof()
    return reply


async def serve(settings: Mapping[str, Any]) -> None:
    """Until it is killed; its address is the first line that it prints."""
    server = Server(Path(settings["ledger"]), seed=settings["seed"], fault_share=settings["fault_share"])
    runner = web.AppRunner(server.app(), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, HOST, 0).start()
    print(f"http://{HOST}:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(json.loads(sys.stdin.read())))
