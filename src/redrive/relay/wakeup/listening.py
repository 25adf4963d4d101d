"""Listens for the doorbell (G-08) on a connection of its own, and reconnects.

An open connection may receive nothing: a pooler that shares connections between transactions takes LISTEN and gives the
notifications to another client. So the relay notifies itself over another connection, at first and every 30 seconds,
and closes a connection on which that does not arrive. It polls in any case.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

from redrive.ports import ListenConnection, TransientFailure
from redrive.relay.context import RelayContext

ECHO_EVERY_SECONDS: Final = 30.0
ECHO_ANSWER_SECONDS: Final = 2.0
RECONNECT_SECONDS: Final = (0.1, 0.5, 1.0, 2.0, 5.0)
DEAF_SECONDS: Final = 60.0  # before another try: every LISTEN stays behind in a pooler


OpenListenConnection = Callable[[], AbstractAsyncContextManager[ListenConnection]]


class Listening:
    """state: shown by `redrive status`. on_ring: called for each ring."""

    def __init__(
        self, context: RelayContext, open_listen_connection: OpenListenConnection, *, on_ring: Callable[[], None]
    ) -> None:
        self.state = "reconnecting"
        self._context = context
        self._open_listen_connection = open_listen_connection
        self._clock = context.clock
        self._on_ring = on_ring
        self._lost = 0

    async def run(self) -> None:
        while True:
            try:
                async with self._open_listen_connection() as line:
                    await self._listen(line)
            except TransientFailure as failure:
                self._has_lost(failure)
                pause_seconds = RECONNECT_SECONDS[min(self._lost, len(RECONNECT_SECONDS) - 1)]
                self._lost += 1
            else:
                self._is_deaf()
                pause_seconds = DEAF_SECONDS
            await self._clock.sleep(pause_seconds)

    async def _listen(self, line: ListenConnection) -> None:
        """Returns when the connection turns out to be deaf."""
        while await self._receives_own_notification(line):
            self._lost = 0
            self._is_listening()
            await self._hear(line, ECHO_EVERY_SECONDS, until_echoed=False)

    async def _receives_own_notification(self, line: ListenConnection) -> bool:
        with self._context.events.step("echo", worker=self._context.worker):
            await self._context.store.echo(self._context.worker)
        return await self._hear(line, ECHO_ANSWER_SECONDS, until_echoed=True)

    async def _hear(self, line: ListenConnection, seconds: float, *, until_echoed: bool) -> bool:
        """Pass on every ring; True when its own echo was heard."""
        ends_at = self._clock.monotonic() + seconds
        while True:
            left = ends_at - self._clock.monotonic()
            heard = await line.wait(max(left, 0.0))  # one look at least: the process may have been held up
            if heard.rung:
                self._on_ring()
            if heard.echoed and until_echoed:
                return True
            if left <= 0:
                return False

    def _is_listening(self) -> None:
        if self.state != "listening":
            self.state = "listening"
            self._context.events.emit("listener.listening", worker=self._context.worker)
            self._on_ring()  # for all that was missed

    def _has_lost(self, failure: TransientFailure) -> None:
        if self._lost == 0:  # said once, however long it lasts
            self._context.events.emit("listener.reconnecting", worker=self._context.worker, error=str(failure))
        self.state = "reconnecting"

    def _is_deaf(self) -> None:
        if self.state != "deaf":
            self.state = "deaf"
            self._context.events.emit("listener.deaf", worker=self._context.worker)
