"""Debian's RabbitMQ, with a node name, an Erlang port mapper and data of its own. A place is a durable queue."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage, AbstractQueue

from redrive.kit.proof.brokers.server import ServerProcess, free_port, in_thread
from redrive.ports.sources import Delivery
from redrive.transports.rabbitmq import RabbitTransport

T = TypeVar("T")
EMPTY_SECONDS: Final = 0.1
PROGRAM: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


def missing() -> str:
    return "" if PROGRAM.exists() else "there is no rabbitmq-server; Debian has it as a package of this name."


def transport(port: int, place: str, **options: Any) -> RabbitTransport:
    return RabbitTransport(url_of(port), **{"routing_key": place, **options})


def source(port: int, place: str, *, consumer: str) -> BareSource:  # noqa: ARG001 - a queue has one
    return BareSource(url_of(port), place)


def url_of(port: int) -> str:
    return f"amqp://guest:guest@127.0.0.1:{port}/"


class RabbitServer(ServerProcess):
    name = "rabbitmq"

    def __init__(self, directory: Path) -> None:
        port, mapper = free_port(), free_port()
        (directory / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{port}\nloopback_users = none\nmax_message_size = 65536\n"
        )
        (directory / "plugins").write_text("[].")
        # Started here, because the one that the server starts is a daemon that outlives it.
        self._mapper = ServerProcess(
            ["epmd", "-address", "127.0.0.1", "-port", str(mapper)], port=mapper, log=directory / "epmd.log"
        )
        super().__init__(
            [str(PROGRAM)], port=port, log=directory / "rabbitmq.log", env=_environment(directory, port, mapper)
        )
        self.url = url_of(port)

    def start(self) -> None:
        self._mapper.start()
        super().start()

    def stop(self, number: int = signal.SIGTERM) -> None:
        super().stop(number)
        self._mapper.stop(signal.SIGKILL)

    def prepare(self, place: str) -> None:
        """One consumer at a time: the next gets nothing before what the last one had has come back."""
        arguments: Any = {"x-single-active-consumer": True}
        self.ask(lambda channel: channel.declare_queue(place, durable=True, arguments=arguments))

    def left(self, place: str, consumer: str) -> int:  # noqa: ARG002 - a queue has one
        """What is delivered and not acknowledged is not counted until its consumer is gone."""

        async def left(channel: AbstractChannel) -> int:
            queue = await channel.declare_queue(place, passive=True)
            return queue.declaration_result.message_count or 0

        return self.ask(left)

    def ask(self, work: Callable[[AbstractChannel], Awaitable[T]], url: str | None = None) -> T:
        async def asked() -> T:
            async with await aio_pika.connect(url or self.url) as connection:
                return await work(await connection.channel())

        return in_thread(asked)


def _environment(directory: Path, port: int, mapper: int) -> dict[str, str]:
    return {
        "HOME": str(directory),
        "ERL_EPMD_PORT": str(mapper),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"redrive{port}@localhost",
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
        "RABBITMQ_MNESIA_BASE": str(directory / "data"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_PID_FILE": str(directory / "pid"),
        "RABBITMQ_CONF_ENV_FILE": str(directory / "none"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1} +S 2:2",
    }


class BareSource:
    """Gets message by message from a queue."""

    def __init__(self, url: str, place: str) -> None:
        self._url, self._place = url, place
        self._connection: AbstractConnection | None = None
        self._queue: AbstractQueue | None = None

    async def receive(self, limit: int, /) -> Sequence[Delivery]:
        try:
            queue = self._queue or await self._opened()
            messages = [message async for message in _got(queue, limit)]
        except BaseException:
            await self.aclose()  # what was got and not acknowledged goes back to the queue
            raise
        if not messages:
            await asyncio.sleep(EMPTY_SECONDS)
        return [_delivery(message) for message in messages]

    async def ack(self, delivery: Delivery, /) -> None:
        await delivery.handle.ack()

    async def give_back(self, delivery: Delivery, /) -> None:
        await delivery.handle.nack(requeue=True)

    async def aclose(self) -> None:
        connection, self._connection, self._queue = self._connection, None, None
        if connection is not None:
            with suppress(Exception):
                await connection.close()

    async def _opened(self) -> AbstractQueue:
        self._connection = await aio_pika.connect(self._url, timeout=5)
        channel = await self._connection.channel()
        self._queue = await channel.get_queue(self._place)
        return self._queue


async def _got(queue: AbstractQueue, limit: int) -> AsyncIterator[AbstractIncomingMessage]:
    for _ in range(limit):
        message = await queue.get(fail=False, timeout=5)
        if message is None:
            return
        yield message


def _delivery(message: AbstractIncomingMessage) -> Delivery:
    return Delivery(
        body=message.body,
        headers={name: str(value) for name, value in message.headers.items()},
        content_type=message.content_type or "",
        id=message.message_id or "",
        handle=message,
    )


server = RabbitServer
