"""Debian's RabbitMQ, with a node name, an Erlang port mapper and data of its own. A place is a durable queue."""

import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import aio_pika
from aio_pika.abc import AbstractChannel

from redrive.kit.proof.brokers.server import ServerProcess, in_thread
from redrive.operate.embedded.processes import free_port
from redrive.sources.rabbitmq import RabbitSource
from redrive.transports.rabbitmq import RabbitTransport

T = TypeVar("T")
PROGRAM: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


def missing() -> str:
    return "" if PROGRAM.exists() else "there is no rabbitmq-server; Debian has it as a package of this name."


def transport(port: int, place: str, **options: Any) -> RabbitTransport:
    return RabbitTransport(url_of(port), **{"routing_key": place, **options})


def source(port: int, place: str, *, consumer: str) -> RabbitSource:  # noqa: ARG001 - a queue has one
    return RabbitSource(url_of(port), queue=place)


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


server = RabbitServer
