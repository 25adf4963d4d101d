"""Debian's RabbitMQ, with a node name, an Erlang port mapper and data of its own."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import aio_pika
from aio_pika.abc import AbstractChannel

from redrive.testing import Condition
from redrive.transports.rabbitmq import RabbitTransport
from tests.transports.brokers.processes import Process, free_port
from tests.transports.brokers.subjects import in_thread

T = TypeVar("T")
SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


class RabbitBroker(Process):
    name = "rabbitmq"

    def __init__(self, directory: Path) -> None:
        port, mapper = free_port(), free_port()
        (directory / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{port}\nloopback_users = none\nmax_message_size = 65536\n"
        )
        (directory / "plugins").write_text("[].")
        # Started here, because the one that the server starts is a daemon that outlives it.
        self._mapper = Process(
            ["epmd", "-address", "127.0.0.1", "-port", str(mapper)], port=mapper, log=directory / "epmd.log"
        )
        env = {
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
        super().__init__([str(SERVER)], port=port, log=directory / "rabbitmq.log", env=env)
        self.url = f"amqp://guest:guest@127.0.0.1:{port}/"

    def start(self) -> None:
        self._mapper.start()
        super().start()

    def stop(self, number: int = signal.SIGTERM) -> None:
        super().stop(number)
        self._mapper.stop(signal.SIGKILL)

    def transport(self, port: int, place: str, **options: Any) -> RabbitTransport:
        return RabbitTransport(f"amqp://guest:guest@127.0.0.1:{port}/", **{"routing_key": place, **options})

    def prepare(self, place: str) -> None:
        self.ask(lambda channel: channel.declare_queue(place, durable=True))

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
        """Taken and not acknowledged: the queue has them back when the channel is closed."""

        async def read(channel: AbstractChannel) -> list[Any]:
            queue = await channel.declare_queue(place, durable=True)
            return [await queue.get() for _ in range(queue.declaration_result.message_count or 0)]

        return self.ask(read)

    def ask(self, work: Callable[[AbstractChannel], Awaitable[T]], url: str | None = None) -> T:
        async def asked() -> T:
            async with await aio_pika.connect(url or self.url) as connection:
                return await work(await connection.channel())

        return in_thread(asked)

    def rewrite(self, said: bytes, port: int) -> bytes:
        return said
