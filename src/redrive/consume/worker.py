"""The loop of one consumer: receives what there is room for, processes it, acknowledges it after the commit.

Messages of one ordering key are processed one after the other, in the order of their arrival; others side by side.
While PostgreSQL is away nothing is acknowledged, and no more is received than `prefetch`. An event whose place was
reserved rests, longer each time, and goes back to the broker. A stop finishes what has begun and gives the rest back.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Final

from redrive.consume.consumer import PREFETCH_MAX, Arrived, Consumer
from redrive.consume.receiving import Kind, Result
from redrive.events import Events
from redrive.ports import Clock
from redrive.ports.sources import Delivery, Source

PAUSES_SECONDS: Final = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0)  # between two tries; the last one for good
# Of an event that can be neither processed nor deferred. At the end shorter than brokers wait for an acknowledgement.
RESTS_SECONDS: Final = (5.0, 10.0, 20.0, 30.0)
FACTS = {
    Kind.PROCESSED: "consumer.processed",
    Kind.DEFERRED: "consumer.deferred",
    Kind.SEEN: "consumer.seen",
}


class ConsumerWorker:
    """receive: processes one message in a transaction of its own (`receiving.py`)."""

    def __init__(
        self,
        consumer: Consumer,
        source: Source,
        receive: Callable[[Arrived], Awaitable[Result]],
        *,
        clock: Clock,
        events: Events,
        stop_seconds: float = 20.0,
    ) -> None:
        self._name, self._consumer, self._source, self._receive = consumer.name, consumer, source, receive
        self._clock, self._events, self._stop_seconds = clock, events, stop_seconds
        self._places = asyncio.Semaphore(consumer.concurrency)
        self._tasks: dict[asyncio.Task[None], float] = {}
        self._last_of_key: dict[str, asyncio.Task[None]] = {}
        self._reserved: dict[str, int] = {}  # how often each one was tried
        self._stopping = asyncio.Event()
        self._room = asyncio.Event()

    @property
    def in_hand(self) -> int:
        """Messages received and not yet acknowledged or given back."""
        return len(self._tasks)

    @property
    def oldest_seconds(self) -> float:
        """For how long the oldest of them is in hand."""
        return self._clock.monotonic() - min(self._tasks.values(), default=self._clock.monotonic())

    def stop(self) -> None:
        self._stopping.set()
        self._room.set()

    async def run(self) -> None:
        """Until it is stopped."""
        self._events.emit("consumer.started", consumer=self._name)
        tries = 0
        while not self._stopping.is_set():
            if self.in_hand >= self._consumer.prefetch:
                self._room.clear()
                await self._room.wait()
                continue
            try:
                deliveries = await self._until_stopped(self._source.receive(self._consumer.prefetch - self.in_hand))
            except Exception as error:
                self._events.emit(
                    "consumer.source_failed", consumer=self._name, error=type(error).__qualname__, tries=tries
                )
                await self._until_stopped(self._clock.sleep(PAUSES_SECONDS[min(tries, len(PAUSES_SECONDS) - 1)]))
                tries += 1
                continue
            tries = 0
            self._events.emit("consumer.looked", consumer=self._name)
            self._take(deliveries or ())
        await self._finish()

    def _take(self, deliveries: Any) -> None:
        if deliveries:
            self._events.emit("consumer.received", consumer=self._name, count=len(deliveries))
        for delivery in deliveries:
            arrived = self._consumer.arrived(delivery)
            key = arrived.order_by
            before = None if key is None else self._last_of_key.get(key)
            task = self._begin(self._one(arrived, before), key)
            if key is not None:
                self._last_of_key[key] = task

    def _begin(self, work: Coroutine[Any, Any, None], key: str | None = None) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks[task] = self._clock.monotonic()
        task.add_done_callback(partial(self._done, key))
        return task

    def _done(self, key: str | None, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if key is not None and self._last_of_key.get(key) is task:
            del self._last_of_key[key]
        self._room.set()

    async def _one(self, arrived: Arrived, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait({before})
        async with self._places:
            if self._stopping.is_set():
                await self._give_back(arrived.delivery)
                return
            result = await self._until_committed(arrived)
        if result is None:
            await self._give_back(arrived.delivery)
        elif result.kind is Kind.RESERVED:
            _ = self._begin(self._rest(arrived, result.code))  # what is behind it is deferred meanwhile
        else:
            fact = FACTS[result.kind]
            self._events.emit(fact, consumer=self._name, code=result.code)
            self._reserved.pop(arrived.message_id, None)
            await self._ack(arrived.delivery)

    async def _rest(self, arrived: Arrived, code: str | None) -> None:
        if len(self._reserved) >= PREFETCH_MAX:
            self._reserved.clear()
        tries = self._reserved[arrived.message_id] = self._reserved.get(arrived.message_id, 0) + 1
        self._events.emit("consumer.reserved", consumer=self._name, code=code, tries=tries)
        await self._until_stopped(self._clock.sleep(RESTS_SECONDS[min(tries, len(RESTS_SECONDS)) - 1]))
        await self._give_back(arrived.delivery)

    async def _until_committed(self, arrived: Arrived) -> Result | None:
        """None where it was not: the message goes back to the broker."""
        tries = 0
        while True:
            try:
                return await self._receive(arrived)
            except Exception as error:  # DatabaseAway, or a bug of ours: no message may be forgotten because of it
                kind = type(error.__cause__ or error).__qualname__
                self._events.emit("consumer.unreachable", consumer=self._name, tries=tries, error=kind)
            await self._until_stopped(self._clock.sleep(PAUSES_SECONDS[min(tries, len(PAUSES_SECONDS) - 1)]))
            tries += 1
            if self._stopping.is_set():
                return None

    async def _ack(self, delivery: Delivery) -> None:
        """One that fails costs a redelivery, which the inbox has seen."""
        try:
            await self._source.ack(delivery)
        except Exception as error:
            self._events.emit("consumer.source_failed", consumer=self._name, error=type(error).__qualname__, tries=0)

    async def _give_back(self, delivery: Delivery) -> None:
        self._events.emit("consumer.given_back", consumer=self._name)
        with suppress(Exception):  # then it comes again when the broker notices that we are gone
            await self._source.give_back(delivery)

    async def _until_stopped(self, awaitable: Awaitable[Any]) -> Any:
        """Its result; None where the stop came first."""
        running, stop = asyncio.ensure_future(awaitable), asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({running, stop}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.cancel()
            if not running.done():
                running.cancel()
                await asyncio.wait({running}, timeout=1.0)
        return running.result() if running.done() and not running.cancelled() else None

    async def _finish(self) -> None:
        self._events.emit("consumer.stopping", consumer=self._name)
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=self._stop_seconds)
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=5.0)
        await self._source.aclose()
        self._events.emit("consumer.stopped", consumer=self._name)
