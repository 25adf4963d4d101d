"""RabbitMQ as the tests of transports use it: conditions, and what a queue holds."""

from __future__ import annotations

from typing import Any

from aio_pika.abc import AbstractChannel
from aio_pika.exceptions import ChannelNotFoundEntity

from redrive.kit.proof.brokers import rabbitmq
from redrive.testing import Condition
from redrive.transports.rabbitmq import RabbitTransport


class RabbitBroker(rabbitmq.RabbitServer):
    def transport(self, port: int, place: str, **options: Any) -> RabbitTransport:
        return rabbitmq.transport(port, place, **options)

    def set_condition(self, place: str, condition: Condition) -> None:
        if condition is Condition.BUSY:
            raise NotImplementedError
        if condition is Condition.REFUSING:
            self.ask(lambda channel: channel.queue_delete(place))
        else:
            self.prepare(place)

    def stored(self, place: str) -> list[str]:
        return [message.headers["idempotency-key"] for message in self.read(place)]

    def read(self, place: str) -> list[Any]:
        """Taken and not acknowledged: the queue has them back when the channel is closed. None of a deleted queue."""

        async def read(channel: AbstractChannel) -> list[Any]:
            try:
                queue = await channel.declare_queue(place, passive=True)
            except ChannelNotFoundEntity:
                return []
            return [await queue.get() for _ in range(queue.declaration_result.message_count or 0)]

        return self.ask(read)
