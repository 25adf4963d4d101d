"""A consumer that breaks every promise once: `redrive prove brokers` must say so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redrive import App
from redrive.consume.event import Event
from redrive.ports.sources import Delivery, Source
from redrive.prove.brokers import config, consumer

LOST, TWICE, LATE, INVENTED, NOT_ACKNOWLEDGED = range(1, 6)  # numbers of messages of each producer
THE_LAST = 1_000_000

app = App()


class Forgetful:
    """Does not acknowledge every message."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.give_back, self.aclose = source.give_back, source.aclose

    async def receive(self, limit: int, /) -> Sequence[Delivery]:
        return await self._source.receive(limit)

    async def ack(self, delivery: Delivery, /) -> None:
        if b'"number": %d,' % NOT_ACKNOWLEDGED not in delivery.body:
            await self._source.ack(delivery)


@app.consumer(config.CONSUMER, source=lambda: Forgetful(consumer.source()), order="subject", **config.RULES)
async def receive(conn: Any, event: Event) -> None:
    number = event.data["number"]
    if number == LOST:
        return
    await consumer.write_effect(conn, event)
    if number == TWICE:
        await consumer.write_effect(conn, event)
    if number == LATE:
        name = f"{event.data['by']}/{number}"
        await conn.execute("UPDATE redrive_prove.effect SET number = number + %s WHERE name = %s", [THE_LAST, name])
    if number == INVENTED:
        await conn.execute("INSERT INTO redrive_prove.effect (name) VALUES ('of no producer')")
