"""The subscribers of the demo, in a process of their own: POST /{tenant} takes an event.

    PUT /{tenant}    what its subscriber answers from now on, such as 503: a control that no subscriber has

An event whose `Idempotency-Key` is known is taken once. What was taken is in the ledger before the answer leaves.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aiohttp import web

from redrive.kit.proof.journal import SharedJournal, read
from redrive.kit.simulator import serve

TAKEN = 204


class Subscribers:
    def __init__(self, ledger: Path) -> None:
        self._answers: dict[str, int] = {}
        self._taken = {line["token"] for line in read(ledger)}
        self._ledger = SharedJournal(ledger)

    def app(self) -> web.Application:
        app = web.Application()
        app.add_routes([web.post("/{tenant}", self._post), web.put("/{tenant}", self._put)])
        return app

    async def _post(self, request: web.Request) -> web.Response:
        tenant = request.match_info["tenant"]
        status = self._answers.get(tenant, TAKEN)
        token = request.headers["Idempotency-Key"]
        if status == TAKEN and token not in self._taken:
            self._taken.add(token)
            body: dict[str, Any] = await request.json()
            await self._ledger.append(tenant=tenant, order=body["order"], token=token)
        return web.Response(status=status)

    async def _put(self, request: web.Request) -> web.Response:
        self._answers[request.match_info["tenant"]] = (await request.json())["status"]
        return web.Response(status=TAKEN)


if __name__ == "__main__":
    serve(lambda settings: Subscribers(Path(settings["ledger"])).app())
