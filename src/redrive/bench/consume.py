"""One worker process: `python -m redrive.bench.consume`, its settings as JSON on standard input.

It says "ready" when its consumer has started, and prints the moments of that and of the last event's commit. Its
handler makes the same INSERT as `bare.py`.
"""

import asyncio
import json
import sys
import time
from collections.abc import Mapping
from typing import Any

import redrive
from redrive.bench.bare import INSERT
from redrive.bench.until import until
from redrive.consume.process import WorkerProcess, run_worker
from redrive.events import Events
from redrive.ports.sources import Source


def source_of(settings: Mapping[str, Any]) -> Source:
    url, place, name = settings["url"], settings["place"], settings["name"]
    if settings["broker"] == "nats":
        from redrive.sources.nats import NatsSource

        return NatsSource(url, stream=place, durable=name)
    if settings["broker"] == "rabbitmq":
        from redrive.sources.rabbitmq import RabbitSource

        return RabbitSource(url, queue=place)
    from redrive.sources.redis import RedisSource

    return RedisSource(url, stream=place, group=name)


async def consume(settings: Mapping[str, Any]) -> dict[str, float]:
    app, events, ended = redrive.App(), Events(), asyncio.Event()
    moments: dict[str, float] = {}
    left = int(settings["count"])

    @app.consumer("bench", source=lambda: source_of(settings))
    async def handle(conn: Any, event: redrive.Event) -> None:
        await conn.execute(INSERT, [settings["name"], event.id])

    def started(_: str, __: Mapping[str, Any]) -> None:
        moments["began"] = time.monotonic()
        print("ready", flush=True)

    def processed(_: str, __: Mapping[str, Any]) -> None:
        nonlocal left
        left -= 1
        if not left:
            moments["ended"] = time.monotonic()
            ended.set()

    events.subscribe(started, "consumer.started")
    events.subscribe(processed, "consumer.processed")
    process = WorkerProcess(app=app, dsn=settings["dsn"])
    worker = asyncio.create_task(run_worker(process, events=events, signals=False))
    await until(ended, worker)
    return moments


if __name__ == "__main__":
    print(json.dumps(asyncio.run(consume(json.loads(sys.stdin.readline())))))
