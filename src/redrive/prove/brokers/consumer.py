"""The app of the consuming service: `redrive worker` consumes, `redrive relay` processes what the worker defers.

The effect of an event is a row in its transaction. The table has no unique index: a second effect would be seen.
"""

import os
from typing import Any

from redrive.app import App
from redrive.consume.event import Event
from redrive.kit.proof import brokers
from redrive.ports.sources import Source
from redrive.prove.brokers import config

app = App()


class RefusedByTheWorker(Exception):
    pass


def source() -> Source:
    return brokers.kind(config.broker()).source(config.port(), config.PLACE, consumer=config.CONSUMER)


@app.consumer(config.CONSUMER, source=source, order="subject", **config.RULES)
async def receive(conn: Any, event: Event) -> None:
    if os.environ.get(config.ROLE_VARIABLE) == config.WORKER and event.data["number"] % config.REFUSED_EVERY == 0:
        raise RefusedByTheWorker
    await write_effect(conn, event)


async def write_effect(conn: Any, event: Event) -> None:
    name = f"{event.data['by']}/{event.data['number']}"
    await conn.execute("INSERT INTO redrive_prove.effect (name, order_by) VALUES (%s, %s)", [name, event.subject])
