"""The embedded NATS server, with JetStream."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import nats
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DiscardPolicy, StreamConfig

from redrive.operate.embedded import nats_server
from redrive.operate.embedded.nats_server import NatsServer
from redrive.testing import Condition
from redrive.transports.nats import NatsTransport
from tests.transports.brokers.subjects import in_thread

T = TypeVar("T")
BATCH = 500


class NatsBroker:
    name = "nats"

    def __init__(self, directory: Path, *, config: str = "max_payload: 64KB\n") -> None:
        self._directory, self._config = directory / "nats", config
        self._server: NatsServer | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._server = nats_server.start(self._directory, port=self.port, config=self._config)
        self.port = self._server.port

    def stop(self, number: int = signal.SIGTERM) -> None:
        server, self._server = self._server, None
        if server is not None:
            os.kill(server.pid, number)
            server.stop()

    def transport(self, port: int, place: str, **options: Any) -> NatsTransport:
        return NatsTransport(f"nats://127.0.0.1:{port}", **{"subject": f"{place}.{{order_by}}", **options})

    def prepare(self, place: str) -> None:
        self.ask(lambda js: js.add_stream(_config(place)))

    def set_condition(self, place: str, condition: Condition) -> None:
        busy = {"max_bytes": 10, "discard": DiscardPolicy.NEW} if condition is Condition.BUSY else {}
        refusing = {"max_msg_size": 1} if condition is Condition.REFUSING else {}
        self.ask(lambda js: js.update_stream(_config(place, **busy, **refusing)))

    def stored(self, place: str) -> list[str]:
        return [headers["idempotency-key"] for _, headers, _ in self.read(place)]

    def read(self, place: str) -> list[tuple[str, dict[str, str], bytes]]:
        """Subject, headers and body of every message."""

        async def read(js: JetStreamContext) -> list[tuple[str, dict[str, str], bytes]]:
            left = (await js.stream_info(place)).state.messages
            config = ConsumerConfig(ack_policy=AckPolicy.NONE)
            pulling = await js.pull_subscribe("", stream=place, config=config)
            found: list[tuple[str, dict[str, str], bytes]] = []
            while left > len(found):
                batch = await pulling.fetch(min(BATCH, left - len(found)), timeout=5)
                found += [(message.subject, dict(message.headers or {}), message.data) for message in batch]
            return found

        return self.ask(read)

    def ask(self, work: Callable[[JetStreamContext], Awaitable[T]], url: str | None = None) -> T:
        async def asked() -> T:
            client = await nats.connect(url or self.url)
            try:
                return await work(client.jetstream())
            finally:
                await client.close()

        return in_thread(asked)

    def rewrite(self, said: bytes, port: int) -> bytes:
        return said


def _config(place: str, **limits: Any) -> StreamConfig:
    return StreamConfig(name=place, subjects=[f"{place}.>"], max_bytes=limits.pop("max_bytes", -1), **limits)
