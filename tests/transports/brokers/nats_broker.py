"""NATS as the tests of transports use it: conditions, and what a stream holds."""

from __future__ import annotations

from typing import Any

from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DiscardPolicy

from redrive.kit.proof.brokers import nats
from redrive.testing import Condition
from redrive.transports.nats import NatsTransport

BATCH = 500


class NatsBroker(nats.NatsServer):
    def transport(self, port: int, place: str, **options: Any) -> NatsTransport:
        return nats.transport(port, place, **options)

    def set_condition(self, place: str, condition: Condition) -> None:
        busy = {"max_bytes": 10, "discard": DiscardPolicy.NEW} if condition is Condition.BUSY else {}
        refusing = {"max_msg_size": 1} if condition is Condition.REFUSING else {}
        self.ask(lambda js: js.update_stream(nats.stream_config(place, **busy, **refusing)))

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
