"""A queue of RabbitMQ as a source, acknowledged after the commit. Needs the extra `rabbitmq`.

    source=lambda: RabbitSource("amqps://rabbit.internal/", queue="orders")

What was not acknowledged comes again when its channel is closed, in its order and before what is new. Order by key
needs a queue with `x-single-active-consumer`: the next worker then gets nothing before that.
"""

from __future__ import annotations

import asyncio
from bisect import insort
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, NamedTuple

from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage

from redrive.answers import Retryable
from redrive.errors import InvalidValue, LoginRefused, OperatorError, QueueMissing, Unreachable
from redrive.ports.sources import Delivery
from redrive.transports.brokers import CONNECT_SECONDS, NOT_AUTHORISED, ORDER_HEADER, STREAM_MISSING, Connection
from redrive.transports.rabbitmq import check_url, opened

__all__ = ["RabbitSource"]

WAIT_SECONDS: Final = 1.0
_ERRORS: Final[Mapping[str, type[OperatorError]]] = {STREAM_MISSING: QueueMissing, NOT_AUTHORISED: LoginRefused}


class RabbitSource:
    """url: `amqp://` or `amqps://`, with the virtual host as its path. queue: it must exist, and be durable, classic or
    quorum.

    Raises `QueueMissing`, `LoginRefused` or `Unreachable`; the next `receive` connects again.
    """

    def __init__(self, url: str, *, queue: str, connect_seconds: float = CONNECT_SECONDS) -> None:
        check_url(url)
        if not queue:
            raise InvalidValue("A RabbitSource needs the name of a queue.")
        if not connect_seconds > 0:
            raise InvalidValue(f"connect_seconds is {connect_seconds}; it must be above 0.")
        self._url, self._queue, self._connect_seconds = url, queue, connect_seconds
        self._prefetch = 0
        self._connection = Connection(
            self._open, is_open=Subscription.is_open, close=Subscription.close, connect_seconds=connect_seconds
        )

    async def receive(self, limit: int, /) -> Sequence[Delivery]:
        # Never less than before: a quorum queue puts what comes again behind what it could not deliver again at once.
        self._prefetch = max(self._prefetch, limit)
        subscription = await self._subscribed()
        await subscription.wait()
        return subscription.take(limit)

    async def ack(self, delivery: Delivery, /) -> None:
        """Not on a channel that is lost: there it comes again, and the inbox has seen it."""
        if delivery.handle.subscription.is_open():
            await delivery.handle.message.ack()

    async def give_back(self, delivery: Delivery, /) -> None:
        """It comes again here, in its place, or elsewhere when this worker has gone. RabbitMQ is not told: a requeue
        puts it at the end of a quorum queue, or counts towards a delivery limit, which drops messages."""
        delivery.handle.subscription.give_back(delivery)

    async def aclose(self) -> None:
        """RabbitMQ has back what was not acknowledged."""
        await self._connection.aclose()

    async def _subscribed(self) -> Subscription:
        try:
            return await self._connection.get()
        except Retryable as answer:
            raise _ERRORS.get(answer.code, Unreachable)(answer.text) from answer.__cause__

    async def _open(self) -> Subscription:
        missing = f"There is no queue {self._queue!r}."
        return await opened(self._url, self._consume, missing=missing, connect_seconds=self._connect_seconds)

    async def _consume(self, connection: AbstractConnection) -> Subscription:
        channel = await connection.channel(publisher_confirms=False)
        await channel.set_qos(prefetch_count=self._prefetch)
        subscription = Subscription(connection, channel, self._queue)
        await subscription.begin()
        return subscription


class Place(NamedTuple):
    """The handle of a delivery."""

    subscription: Subscription
    message: AbstractIncomingMessage


class Subscription:
    """One channel that consumes, until it is lost, or the queue is deleted."""

    def __init__(self, connection: AbstractConnection, channel: AbstractChannel, queue: str) -> None:
        self._connection, self._channel, self._queue = connection, channel, queue
        self._consumers: Mapping[str, Any] = {}  # of the channel: RabbitMQ may take ours away
        self._tag = ""
        self._ready: list[Delivery] = []
        self._changed = asyncio.Event()

    async def begin(self) -> None:
        self._channel.close_callbacks.add(self._wake)
        queue = await self._channel.get_queue(self._queue)
        self._tag = await queue.consume(self._add)
        underlay: Any = await self._channel.get_underlay_channel()
        self._consumers = underlay.consumers

    def is_open(self) -> bool:
        return self._tag in self._consumers and not (self._connection.is_closed or self._channel.is_closed)

    async def close(self) -> None:
        """Of the connection, and not `basic.cancel` first: that lets another worker overtake what is in hand here."""
        await self._connection.close()

    async def wait(self) -> None:
        """About a second for the first message, or until the channel is lost."""
        if self._ready:
            return
        self._changed.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), WAIT_SECONDS)

    def take(self, limit: int) -> list[Delivery]:
        taken, self._ready = self._ready[:limit], self._ready[limit:]
        return taken

    def give_back(self, delivery: Delivery) -> None:
        insort(self._ready, delivery, key=_number)
        self._wake()

    async def _add(self, message: AbstractIncomingMessage) -> None:
        self._ready.append(_delivery(self._queue, message, Place(self, message)))
        self._wake()

    def _wake(self, *_: object) -> None:
        self._changed.set()


def _number(delivery: Delivery) -> int:
    return int(delivery.handle.message.delivery_tag)


def _delivery(queue: str, message: AbstractIncomingMessage, place: Place) -> Delivery:
    """Without a `message_id` its id is that of this delivery: another message must not be taken for the same one."""
    texts = {name: _text(value) for name, value in message.headers.items()}
    headers = {name: text for name, text in texts.items() if text is not None}
    return Delivery(
        body=message.body,
        headers=headers,
        content_type=message.content_type or "",
        id=f"{queue}:{message.message_id or f'{message.consumer_tag}:{message.delivery_tag}'}",
        order_by=headers.get(ORDER_HEADER),
        handle=place,
    )


def _text(value: Any) -> str | None:
    """As CloudEvents write it; None for lists and tables, such as RabbitMQ's own `x-death`."""
    match value:
        case str():
            return value
        case bytes() | bytearray():
            return value.decode(errors="replace")
        case bool():
            return "true" if value else "false"
        case int() | float() | Decimal():
            return str(value)
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
    return None
