"""Tells open pages that something has changed, so that they fetch themselves again. Events without data.

One look a second for all pages, none without a page. A page that hears no beat for some seconds says that it is stale.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from starlette.responses import Response, StreamingResponse

from redrive.errors import RedriveError
from redrive.operate.console.calls import Call
from redrive.ports import TransientFailure
from redrive.store.reads.dashboard import pulse
from redrive.store.runtime.postgres import PostgresStore

LOOK_SECONDS: Final = 1.0
BEAT_SECONDS: Final = 5.0
LISTENERS_MAX: Final = 200


class Pulse:
    """What one look saw, shared by all who listen. lost: the database does not answer."""

    def __init__(self) -> None:
        self.changes = 0
        self.lost = False
        self.listeners = 0
        self._looker: asyncio.Task[None] | None = None

    async def listen(self, call: Call) -> AsyncIterator[bytes]:
        self.listeners += 1
        if self._looker is None:
            self._looker = asyncio.create_task(self._look(call.store))
        try:
            yield b"retry: 2000\n\n"
            async for event in self._events(call):
                yield event
        finally:
            self.listeners -= 1
            if not self.listeners and self._looker is not None:
                self._looker.cancel()
                self._looker = None

    async def _events(self, call: Call) -> AsyncIterator[bytes]:
        seen, quiet = self._state(call), BEAT_SECONDS
        while not await call.request.is_disconnected():
            now = self._state(call)
            if now != seen or quiet >= BEAT_SECONDS:
                event = "lost" if self.lost else "beat" if now == seen else "pulse"
                yield f"event: {event}\ndata: 1\n\n".encode()
                seen, quiet = now, 0.0
            await asyncio.sleep(LOOK_SECONDS)
            quiet += LOOK_SECONDS

    def _state(self, call: Call) -> tuple[int, bool, int]:
        return self.changes, self.lost, call.jobs.changes(call.principal.name)

    async def _look(self, store: PostgresStore) -> None:
        while True:
            try:
                self.changes, self.lost = await pulse(store), False
            except (RedriveError, TransientFailure, OSError):
                self.lost = True
            await asyncio.sleep(LOOK_SECONDS)


async def listen(call: Call, shared: Pulse) -> Response:
    if shared.listeners >= LISTENERS_MAX:
        return Response(status_code=503, headers={"Retry-After": "30"})
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(shared.listen(call), media_type="text/event-stream", headers=headers)
