"""Asks producers to ring for what has run dry (G-08), and wakes the loop when they do.

The order matters. A look found nothing; producers are asked to ring; *then* comes one more look, because a producer
that enqueued in between did not ring. The poll finds what commits later still.

A ring wakes at once. If the look then finds nothing (another relay was quicker), the rings of the next 25 ms are one
wake. Where rings lead to work there is no such window: one message every 10 ms must not wait for it.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from redrive.ports import Clock, TransientFailure
from redrive.relay.context import RelayContext
from redrive.relay.wakeup.idle import Asked
from redrive.relay.wakeup.listening import Listening, OpenListenConnection

WINDOW_SECONDS: Final = 0.025


class Doorbell:
    """open_listen_connection: None = the relay only polls."""

    def __init__(
        self,
        context: RelayContext,
        open_listen_connection: OpenListenConnection | None,
        *,
        wake: Callable[[], None],
    ) -> None:
        self._context = context
        self._asked = Asked(context.limits.poll_seconds)
        self._debounce = Debounce(wake, context.clock)
        self._listening = open_listen_connection and Listening(
            context, open_listen_connection, on_ring=self._debounce.ring
        )

    @property
    def state(self) -> str:
        return self._listening.state if self._listening else "off"

    async def run(self) -> None:
        try:
            await (self._listening.run() if self._listening else asyncio.Event().wait())
        finally:
            self._debounce.cancel()

    def rings_for(self, destination: str) -> bool:
        """Producers of this destination were asked to ring, and would be heard."""
        return self.state == "listening" and self._asked.is_for(destination)

    def looked(self, *, found: bool) -> None:
        self._debounce.looked(found=found)

    async def announce_idle(self, dry: Iterable[str]) -> frozenset[str]:
        """Ask to be rung for exactly these; returns those that must be looked at once more."""
        wanted = frozenset(dry) if self.state == "listening" else frozenset()
        context, now = self._context, self._context.clock.monotonic()
        if not self._asked.is_outdated(wanted, now):
            return frozenset()
        try:
            with context.events.step("announce_idle", worker=context.worker, count=len(wanted)):
                await context.store.announce_idle(context.worker, sorted(wanted), seconds=self._asked.seconds)
        except TransientFailure:
            self._asked.forget()
            return frozenset()
        return self._asked.asked(wanted, now)


class Debounce:
    """Rings that lead nowhere wake at most once in a window."""

    def __init__(self, wake: Callable[[], None], clock: Clock) -> None:
        self._wake = wake
        self._clock = clock
        self._calm_until = 0.0
        self._found_at = 0.0
        self._has_woken = False
        self._later: asyncio.Task[None] | None = None

    def ring(self) -> None:
        seconds = self._calm_until - self._clock.monotonic()
        if seconds <= 0:
            self._wake_now()
        elif self._later is None or self._later.done():
            self._later = asyncio.create_task(self._wake_later(seconds))

    def looked(self, *, found: bool) -> None:
        now = self._clock.monotonic()
        if found:
            self._found_at = now
        elif self._has_woken and now - self._found_at > WINDOW_SECONDS:
            self._calm_until = now + WINDOW_SECONDS
        self._has_woken = False

    def cancel(self) -> None:
        if self._later is not None:
            self._later.cancel()

    def _wake_now(self) -> None:
        self._has_woken = True
        self._wake()

    async def _wake_later(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._wake_now()
