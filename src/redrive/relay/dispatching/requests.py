"""Answers operators' question about a parked message: could it be sent?

Validation is the user's code, so it runs in a relay, where that code is deployed. Nothing is sent. A relay that dies
over a request leaves it to one more relay. SQL: `take_requests`, `answer_request` in verbs/workflow.sql.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from random import Random
from typing import Final

from redrive.app import Destination
from redrive.events import Events
from redrive.message import WorkerId
from redrive.ports import Asked, Clock, NotBegun, Store, TransientFailure
from redrive.relay.dispatching.dispatch import Dispatcher

LOOK_EVERY_SECONDS: Final = 1.0
AT_ONCE: Final = 20
MARGIN_SECONDS: Final = 30.0  # beyond validate and lookup, before another relay is asked


class Requests:
    def __init__(
        self,
        store: Store,
        destinations: Mapping[str, Destination],
        worker: WorkerId,
        *,
        clock: Clock,
        random: Random,
        events: Events,
    ) -> None:
        self._store = store
        self._worker = worker
        self._clock = clock
        self._events = events
        self._hold_seconds = 2 * max(d.timeout_seconds for d in destinations.values()) + MARGIN_SECONDS
        self._dispatchers = {
            name: Dispatcher(destination, clock=clock, random=random, events=events)
            for name, destination in destinations.items()
        }

    async def run(self) -> None:
        while True:
            found = 0
            with suppress(TransientFailure):  # looked for again soon
                found = await self.run_once()
            if not found:
                await self._clock.sleep(LOOK_EVERY_SECONDS)

    async def run_once(self) -> int:
        """Returns how many were answered."""
        with self._events.step("take_requests") as added:
            asked = await self._store.take_requests(
                self._worker, list(self._dispatchers), limit=AT_ONCE, hold_seconds=self._hold_seconds
            )
            added["count"] = len(asked)
        await asyncio.gather(*map(self._answer, asked))
        return len(asked)

    async def _answer(self, asked: Asked) -> None:
        try:
            answer = await self._dispatchers[asked.attempt.destination].examine(asked.attempt)
        except NotBegun:
            text = "All threads of the destination were in use for longer than its timeout. Ask again."
            answer = {"valid": False, "code": "VALIDATE_BUSY", "text": text}
        with self._events.step("answer_request", id=asked.attempt.id, valid=answer["valid"]):
            await self._store.answer_request(self._worker, asked.id, answer)
